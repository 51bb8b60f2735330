/** Effects outside of steps that a call repeats, as differences. */
import type { Difference } from '../differences.ts';
import type { Column } from '../play.ts';
import { expectationOf } from '../problems.ts';
import type { Scenario } from '../scenario.ts';
import type { SeenEffect } from '../stage.ts';

interface Repeated {
  readonly effect: SeenEffect;
  readonly step: number;
  readonly columns: Set<string>;
  /** How often it happened in the call that repeated it most. */
  times: number;
}

/**
 * Effects that happened in several runs of one call, and those that an ask came after: they happen again where the call
 * continues in another process. One difference for each tool and place, whatever the number of columns.
 */
export function effectDifferences(scenario: Scenario, columns: readonly Column[]): Difference[] {
  const found = new Map<string, Repeated>();
  for (const { name, steps } of columns) {
    for (const [step, { effects }] of steps.entries()) {
      const played = scenario.steps[step];
      if (played === undefined || expectationOf(played).effects === 'allowed') continue;
      for (const { first, runs, times } of placesIn(effects)) {
        if (runs < 2 && !first.isBeforeAsk) continue;
        const key = JSON.stringify([step, first.tool, first.at]);
        const known = found.get(key) ?? { effect: first, step, columns: new Set(), times: 0 };
        known.columns.add(name);
        if (runs > 1) known.times = Math.max(known.times, times);
        found.set(key, known);
      }
    }
  }
  return [...found.values()].map(({ effect, step, columns: names, times }) => ({
    kind: 'effect',
    step,
    columns: [...names],
    text: sentence(effect, times),
  }));
}

/** What happened at each place of each call. */
function placesIn(effects: readonly SeenEffect[]) {
  const places = new Map<string, SeenEffect[]>();
  for (const effect of effects) {
    const place = `${effect.call} ${effect.at}`;
    places.set(place, [...(places.get(place) ?? []), effect]);
  }
  return [...places.values()].flatMap((all) => {
    const [first] = all;
    // A request may be seen twice, as itself and as what goes over its socket.
    const same = all.filter(({ what }) => what === first?.what);
    return first === undefined
      ? []
      : [{ first, runs: new Set(same.map(({ run }) => run)).size, times: same.length }];
  });
}

function sentence({ tool, what, at }: SeenEffect, times: number): string {
  const again =
    times > 0
      ? `it ran ${times} times in one call`
      : 'a call that continues in another process runs it again';
  return `effect: ${tool} ${what} (${at}) outside of a step; ${again}. ${advice(tool)}`;
}

/** What to write instead. */
export function advice(tool: string): string {
  const [name = tool] = /^[a-z\d]+/i.exec(tool) ?? [];
  return `Put it into a step: await step('${name}', () => …); or write expect: { effects: allowed }`;
}
