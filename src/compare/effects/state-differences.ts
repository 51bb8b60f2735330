/** Variables of modules that a replayed call changes otherwise than one whose frame is kept. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { Difference } from '../differences.ts';
import type { Column } from '../play.ts';
import { expectationOf } from '../problems.ts';
import { requestOf, type Scenario, type Step } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';
import { advice } from './differences.ts';
import type { Counts } from './module-counts.ts';

/** A play, and by how much each of its steps changed each variable. */
export interface CountedPlay {
  readonly column: Column;
  readonly changes: readonly ReadonlyMap<string, number>[];
}

/** Plays, and counts what the processes keep in their modules before the play and after each of its steps. */
export async function countedPlay(
  processes: readonly ServerProcess[],
  play: (more: { readonly afterStep: () => Promise<void> }) => Promise<Column>,
): Promise<CountedPlay> {
  const read = (): Promise<Counts[]> => Promise.all(processes.map((process) => process.counts()));
  let before = await read();
  const changes: ReadonlyMap<string, number>[] = [];
  const afterStep = async (): Promise<void> => {
    const after = await read();
    changes.push(changesOf(before, after));
    before = after;
  };
  return { column: await play({ afterStep }), changes };
}

/**
 * Each process has its own memory: what counts adds up over them. A map may be a cache, which each of them fills once.
 */
function changesOf(before: readonly Counts[], after: readonly Counts[]): ReadonlyMap<string, number> {
  const all = new Map<string, number>();
  for (const [nth, counts] of after.entries()) {
    for (const [variable, count] of Object.entries(counts)) {
      const change = count - (before[nth]?.[variable] ?? 0);
      const others = all.get(variable) ?? 0;
      all.set(variable, variable.endsWith('.size') ? Math.max(others, change) : others + change);
    }
  }
  return all;
}

/** @param plays two of each, one after the other: what does not change alike in both hangs on something else */
export function stateDifferences(
  scenario: Scenario,
  plays: { readonly replayed: readonly CountedPlay[]; readonly kept: readonly CountedPlay[] },
): Difference[] {
  const [replayed, ...others] = [plays.replayed, plays.kept].map(
    (two) => (step: number, variable: string) => {
      const changes = two.map((play) => play.changes[step]?.get(variable) ?? 0);
      return new Set(changes).size === 1 ? changes[0] : undefined;
    },
  );
  const [kept] = others;
  const name = plays.replayed[0]?.column.name;
  if (name === undefined) return [];
  return scenario.steps.flatMap((step, index): Difference[] => {
    if (expectationOf(step).effects === 'allowed') return [];
    const variables = new Set(plays.replayed.flatMap(({ changes }) => [...(changes[index]?.keys() ?? [])]));
    return [...variables].flatMap((variable): Difference[] => {
      const [again, once] = [replayed?.(index, variable), kept?.(index, variable)];
      if (again === undefined || once === undefined || again === once) return [];
      return [
        {
          kind: 'effect',
          step: index,
          columns: [name],
          text: sentence(targetOf(step), variable, again, once),
        },
      ];
    });
  });
}

function sentence(tool: string, variable: string, again: number, once: number): string {
  const at = variable.indexOf(' ');
  const [file, name] = [variable.slice(0, at), variable.slice(at + 1).replace(/\.(length|size)$/, '')];
  return `effect: ${tool} changed the module variable ${name} (${declarationOf(file, name)}) outside of a step: by ${again} in one call that is run again from its start, by ${once} in one that is not. ${advice(tool)}`;
}

/** `effect.ts:3`: where the author declares the variable, or the file alone. */
function declarationOf(path: string, name: string): string {
  const [root = ''] = /^[\w$]+/.exec(name) ?? [];
  try {
    const declares = new RegExp(
      `\\b(let|const|var|class)\\b[^=]*(?<![\\w$])${root.replaceAll('$', '\\$')}(?![\\w$])`,
    );
    const line = readFileSync(path, 'utf8')
      .split('\n')
      .findIndex((text) => declares.test(text));
    if (line >= 0) return `${basename(path)}:${line + 1}`;
  } catch {
    // A file that is gone, or was never one.
  }
  return basename(path);
}

function targetOf(step: Step): string {
  const { method, params } = requestOf(step);
  return String(params.name ?? params.uri ?? method);
}
