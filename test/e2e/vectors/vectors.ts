/**
 * The example messages of the two drafts of multi round-trip requests, as parsed JSON. `mended` describes the
 * correction of one that is not JSON, or contradicts the draft's text.
 */
import { readFileSync } from 'node:fs';

export type Json = Readonly<Record<string, unknown>>;

export interface Vector {
  readonly name: string;
  readonly from: 'client' | 'server';
  readonly message: Json;
  readonly mended?: string;
}

export interface Vectors {
  /** Parts of messages. */
  readonly fragments: readonly Vector[];
  readonly ephemeral: readonly Vector[];
  readonly persistent: readonly Vector[];
}

export const MRTR_DRAFT = read('mrtr-draft');
export const SEP_2322 = read('sep-2322');

function read(name: string): Vectors {
  return JSON.parse(readFileSync(new URL(`${name}.json`, import.meta.url), 'utf8')) as Vectors;
}

/** Members whose example shows one of many values: ids, times, tokens, intervals, and a status in words. */
const ANY: ReadonlySet<string> = new Set([
  'id',
  'taskId',
  'createdAt',
  'lastUpdatedAt',
  'request_state',
  'requestState',
  'statusMessage',
  'pollInterval',
]);

/** A message with nothing in it that differs from run to run; that it is there, and of which type, stays. */
export function blank(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(blank);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, ANY.has(key) ? typeof inner : blank(inner)]),
  );
}
