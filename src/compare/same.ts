/**
 * Compares two plays, without ids, times, tokens and parts that vary from play to play by themselves. It knows no
 * revision; members that a revision adds to every result are left out.
 */
import { isObject } from '../base/values.ts';
import type { PlayedStep } from './play.ts';

/** Members of results that are the revision's, not the server's. */
const ENVELOPE: ReadonlySet<string> = new Set([
  '_meta',
  'resultType',
  'ttlMs',
  'cacheScope',
  'nextCursor',
  '$schema',
  // A tool's declaration about tasks: each revision has its own form, and most have none.
  'execution',
]);

const MASKS: readonly (readonly [RegExp, string])[] = [
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, '‹id›'],
  [/\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?/g, '‹time›'],
  [/\b\d{1,2}:\d\d:\d\d(\.\d+)?\b/g, '‹time›'],
  [/\b1[6-9]\d{11}(\.\d+)?\b/g, '‹time›'],
  [/\b[0-9a-f]{16,}\b/gi, '‹token›'],
];

/** The leaves of a step, by their paths: the values that are compared. */
export type Leaves = ReadonlyMap<string, string>;

/** Paths, with the words of each that vary: `all` where its number of words does. */
export type Varying = ReadonlyMap<string, ReadonlySet<number> | 'all'>;

export interface Sameness {
  /** Texts that the scenario excludes. */
  readonly ignore: readonly RegExp[];
  /** By the index of the step. */
  readonly varying: readonly Varying[];
}

export function leavesOf(step: PlayedStep, index: number, { ignore, varying }: Sameness): Leaves {
  const leaves = new Map<string, string>();
  // Without its envelope. The texts of errors are their SDK's, and not compared: their codes are.
  const outcome =
    'error' in step.outcome ? { error: step.outcome.error.code } : stripped(step.outcome.result);
  for (const [path, value] of flat(outcome, '')) leaves.set(path, masked(value, ignore));
  for (const [path, words] of varying[index] ?? []) {
    const value = leaves.get(path);
    if (value === undefined) continue;
    const masks = (word: string, at: number): string =>
      words !== 'all' && !words.has(at) ? word : '‹varies›';
    leaves.set(path, (words === 'all' ? [value] : wordsOf(value)).map(masks).join(''));
  }
  return leaves;
}

/**
 * The questions of a step as they are compared, without roots: many servers ask for them on their own, at any time, and
 * no client can assign them to a call.
 */
export function questionsOf(step: PlayedStep, { ignore }: Sameness): string[] {
  const toUser = step.asks.filter(({ method }) => method !== 'roots/list');
  return toUser.map(({ question }) => masked(question, ignore));
}

/** The words that vary between two plays of the same scenario on the same revision. */
export function varyingIn(
  once: readonly PlayedStep[],
  again: readonly PlayedStep[],
  ignore: readonly RegExp[],
): Varying[] {
  const plain: Sameness = { ignore, varying: [] };
  return once.map((step, index) => {
    const other = again[index];
    if (other === undefined) return new Map();
    const second = leavesOf(other, index, plain);
    const varying = new Map<string, ReadonlySet<number> | 'all'>();
    for (const [path, value] of leavesOf(step, index, plain)) {
      const words = varyingWords(value, second.get(path));
      if (words !== undefined) varying.set(path, words);
    }
    return varying;
  });
}

function varyingWords(once: string, again: string | undefined): ReadonlySet<number> | 'all' | undefined {
  if (again === undefined || once === again) return undefined;
  const [first, second] = [wordsOf(once), wordsOf(again)];
  if (first.length !== second.length) return 'all';
  return new Set(first.flatMap((word, index) => (word === second[index] ? [] : [index])));
}

/** Splits a text into words and separators; joining them gives the text back. */
export function wordsOf(text: string): string[] {
  return text.split(/(\s+|[()[\]{},;:"'])/);
}

function stripped(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(stripped);
  if (!isObject(value)) return value;
  const kept = Object.entries(value).filter(([name]) => !ENVELOPE.has(name));
  return Object.fromEntries(kept.map(([name, inner]) => [name, stripped(inner)]));
}

function* flat(value: unknown, path: string): Generator<[string, string]> {
  if (Array.isArray(value)) {
    yield* namedItems(value, path);
  } else if (isObject(value)) {
    for (const name of Object.keys(value).sort())
      yield* flat(value[name], path === '' ? name : `${path}.${name}`);
  } else if (value !== undefined && value !== null) {
    yield [path, String(value)];
  }
}

/** Tools, prompts and the like go by their names: one more of them must not shift the others. */
function* namedItems(items: readonly unknown[], path: string): Generator<[string, string]> {
  for (const [index, item] of items.entries()) {
    const name =
      isObject(item) && /^(tools|prompts|resources)$/.test(path) ? (item.name ?? item.uri) : undefined;
    yield* flat(item, name === undefined ? `${path}[${index}]` : `${path}[${String(name)}]`);
  }
}

function masked(text: string, ignore: readonly RegExp[]): string {
  let result = text;
  for (const pattern of ignore) result = result.replace(pattern, '‹ignored›');
  for (const [pattern, mask] of MASKS) result = result.replace(pattern, mask);
  result = result.replace(/[\w-]{20,}/g, (run) =>
    [/\d/, /[a-z]/, /[A-Z]/].every((kind) => kind.test(run)) ? '‹token›' : run,
  );
  return result;
}
