/**
 * The place in the code that draws a value: the call site, and its branch among those that run at once.
 *
 * V8's stacks continue across `await`, and name the index of a branch inside of `Promise.all`, `allSettled` and `any`
 * (V8's "zero-cost async stack traces"; seen on Node 20, 22 and 24). Unlike a count of values drawn so far, or of
 * promises made, a stack does not depend on which branch came first, nor on caches. One takes about ten microseconds,
 * only inside of calls.
 */

import { sha256 } from '../base/digest.ts';
import { fileOf, isBuiltIn, placeIn, stackBelow } from '../base/stack.ts';
import type { DrawPlace } from '../call/frame/drawn.ts';

/** Most stack frames that are read. */
const DEPTH = 64;
/** The frame in a stack at which a call is entered: below it, a first run and a replay differ. */
const ENTRY = /^node:(async_hooks$|internal\/async_(local_storage|context_frame))/;

type AnyFunction = (...args: never[]) => unknown;

/** @param below the frame that drew is the one that called this function */
export function placeOf(kind: string, below: AnyFunction): DrawPlace {
  const frames = framesBelow(below);
  const called = frames.filter((frame) => !frame.isAsync()).map(placeIn);
  const awaiting = frames.filter((frame) => frame.isAsync()).map(placeIn);
  return {
    site: `${kind} ${called[0] ?? 'unknown'}~${short(called.join())}`,
    branch: `${pathOf(frames)}${short(awaiting.join())}`,
  };
}

/** For values that identify themselves, as a request does: only the branch. */
export function branchOf(below: AnyFunction): string {
  return pathOf(framesBelow(below));
}

function pathOf(frames: readonly NodeJS.CallSite[]): string {
  return `[${frames.flatMap((frame) => indexOf(frame) ?? []).join('.')}]`;
}

/** A few characters that distinguish the texts of one call. */
export function short(text: string): string {
  return sha256(text).slice(0, 6);
}

/** The frames of the user's code, and of the joints between branches. */
function framesBelow(below: AnyFunction): readonly NodeJS.CallSite[] {
  const frames = stackBelow(below, DEPTH);
  const end = frames.findIndex((frame) => ENTRY.test(fileOf(frame)));
  // Node's own frames depend on the phase of the event loop, that is, on timing.
  return frames
    .slice(0, end < 0 ? frames.length : end)
    .filter((frame) => indexOf(frame) !== undefined || !isBuiltIn(frame));
}

function indexOf(frame: NodeJS.CallSite): number | undefined {
  return frame.isAsync() ? (frame.getPromiseIndex() ?? undefined) : undefined;
}
