/** Variables of modules that a replayed call changes otherwise than one whose frame is kept. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { type Difference, short } from '../differences.ts';
import type { Column } from '../play.ts';
import { expectationOf } from '../problems.ts';
import { leavesOf, wordsOf } from '../same.ts';
import { requestOf, type Scenario } from '../scenario.ts';
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
      const { method, params } = requestOf(step);
      const tool = String(params.name ?? params.uri ?? method);
      const at = variable.indexOf(' ');
      const [file, own] = [variable.slice(0, at), variable.slice(at + 1).replace(/\.(length|size)$/, '')];
      const text = `effect: ${tool} changed the module variable ${own} (${declarationOf(file, own)}) outside of a step: by ${again} in one call that is run again, by ${once} in one that is not. ${advice(tool)}`;
      return [{ kind: 'effect', step: index, columns: [name], text }];
    });
  });
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

// --- counters that results print ---

/** Counters that results print: they are no noise where a call that is run again counts more than once. */

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
      return played && leavesOf(played, index, { ignore, varying: [] });
    });
    return [...(leaves[0]?.keys() ?? [])].flatMap((path): Difference[] => {
      const texts = leaves.map((one) => wordsOf(one?.get(path) ?? ''));
      const counted = texts[0]?.findIndex((_word, at) =>
        isCounter(texts.map((words) => Number(words[at] || 'none'))),
      );
      if (counted === undefined || counted < 0) return [];
      const [once = '', again = ''] = texts.map((words) => words.join(''));
      const text = `effect: ${path} counts what is run again: "${short(once)}", and one call later "${short(again)}". Put what it counts into step(), or write expect: { effects: allowed }`;
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
