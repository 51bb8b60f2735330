/**
 * Observes effects of calls outside of steps, for comparisons: files, processes, requests, sockets, datagrams.
 * It owns the replaced functions of Node's modules, which are there while somebody observes; the async context names
 * the call. Servers do not use it: `src/observe/unjournaled.ts` costs them less, and sees less.
 */
import process from 'node:process';
import { authorPlace } from '../../base/stack.ts';
import { isObject } from '../../base/values.ts';
import { unjournaledCall } from '../../call/frame/context.ts';
import { replaceEffects } from './replaced.ts';

/** One effect of a call, outside of its steps. */
export interface Effect {
  /** The id of its call. */
  readonly call: string;
  /** The tool's name, or what else was called. */
  readonly tool: string;
  /** One run of the tool; a replay is another. */
  readonly run: string;
  /** `wrote a file`, `started a process`. */
  readonly what: string;
  /** The author's line: `effect.ts:17`. */
  readonly at: string;
}

const observers = new Set<(effect: Effect) => void>();
let restore = (): void => {};
const runs = new WeakMap<object, string>();
let count = 0;

/** @returns what ends the observation */
export function observeEffects(observer: (effect: Effect) => void): () => void {
  if (observers.size === 0) restore = replaceEffects(sight);
  observers.add(observer);
  return () => {
    if (observers.delete(observer) && observers.size === 0) restore();
  };
}

/** @param below the function that has the effect: the place is that of its caller */
function sight(what: string, below: (...args: never[]) => unknown, place?: string): void {
  const frame = unjournaledCall();
  const record = isObject(frame) && isObject(frame.call) ? frame.call : undefined;
  if (frame === undefined || record === undefined) return;
  const at = place ?? authorPlace(below);
  if (!at) return;
  const run = runs.get(frame) ?? `${process.pid}-${++count}`;
  runs.set(frame, run);
  const { name, uri } = isObject(record.params) ? record.params : {};
  const effect = { call: String(record.id), tool: String(name ?? uri ?? record.method), run, what, at };
  for (const observer of observers) observer(effect);
}
