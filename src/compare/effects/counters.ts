/** Counters that results print: they are no noise where a call that is run again counts more than once. */
import { type Difference, short } from '../differences.ts';
import type { Column } from '../play.ts';
import { expectationOf } from '../problems.ts';
import { leavesOf, wordsOf } from '../same.ts';
import type { Scenario } from '../scenario.ts';

/** Plays, one after the other: twice with its calls run again, and twice with its frames kept. */
export interface CountingPlays {
  readonly replayed: readonly [Column, Column];
  readonly kept: readonly Column[];
}

/**
 * A word that counts on from play to play, and by more where a call is run again. One that counts alike in both, such
 * as the number of an order, only varies from play to play, and is not compared.
 */
export function counterDifferences(
  scenario: Scenario,
  { replayed, kept }: CountingPlays,
  ignore: readonly RegExp[],
): Difference[] {
  return scenario.steps.flatMap((step, index): Difference[] => {
    if (expectationOf(step).effects === 'allowed') return [];
    const leaves = [...replayed, ...kept].map(({ steps }) => {
      const played = steps[index];
      return played === undefined ? undefined : leavesOf(played, index, { ignore, varying: [] });
    });
    return [...(leaves[0]?.keys() ?? [])].flatMap((path): Difference[] => {
      const texts = leaves.map((one) => wordsOf(one?.get(path) ?? ''));
      const counted = texts[0]?.findIndex((_word, at) =>
        isCounter(texts.map((words) => Number(words[at] || 'none'))),
      );
      if (counted === undefined || counted < 0) return [];
      const [once = '', again = ''] = texts.map((words) => words.join(''));
      const text = `effect: ${path} counts what is run again: "${short(once)}", and one call later "${short(again)}". Put what it counts into step(); if it may be repeated, write expect: { effects: allowed }`;
      return [{ kind: 'effect', step: index, columns: [replayed[0].name], text }];
    });
  });
}

/** Whether it goes on by the same in both plays that keep their frames, and by a multiple of that in the others. */
function isCounter([first, second, third, fourth]: readonly number[]): boolean {
  if (first === undefined || second === undefined || third === undefined || fourth === undefined)
    return false;
  const once = fourth - third;
  const again = second - first;
  return once > 0 && third - second === once && again > once && again % once === 0;
}
