/**
 * The async context of a call, and `step`, which finds its call through it.
 *
 * The context lives at a global symbol, so that the command line's copy of this package and the tool's copy share it.
 * So its value is an interface with a version in its name, never a class.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import process from 'node:process';
import { AwaitError, optionError } from '../../base/values.ts';
import type { DrawnValue } from '../journal/drawn.ts';
import type { DrawPlace } from './drawn.ts';

const SLOT = Symbol.for('mcp-await.context.1');
const COUNTER = Symbol.for('mcp-await.turns.1');
const NAMED = Symbol.for('mcp-await.calls.1');

/** The argument of a step's function. */
export interface StepHandle {
  /**
   * The same on every attempt at this step, in any process. Pass it to the service that the step calls (payments,
   * mail), so that an attempt that was cut off does not act twice.
   */
  readonly idempotencyKey: string;
}

/** The work of a step. Its result must be JSON. */
export type StepFunction<T> = (handle: StepHandle) => T | Promise<T>;

/** The options of `step`. */
export interface StepOptions {
  /**
   * The call that the step belongs to, where the async context may be another call's: the tool's own argument (`extra`
   * or a spread of it; `ctx`), or the result of `currentCall()` at the tool's start.
   */
  readonly call?: object | undefined;
}

/** Names a call: see `currentCall`. */
export interface CurrentCall {
  readonly kind: 'mcp-await call';
}

/** The async context of a running call, or of a step inside of one. */
export interface CallContext {
  /** Marks the call this context belongs to; compared by identity. */
  readonly call: object;
  /** The path of the step this code runs in; absent outside of steps. */
  readonly stepPath?: string;
  /** The context of the call's own code, inside of steps. */
  readonly root?: () => CallContext;
  /** Whether the call still runs in this frame. */
  readonly isLive?: () => boolean;
  step<T>(name: string, fn: StepFunction<T>): Promise<T>;
  /** Gives the call up to another process, where its client can bring it there. */
  readonly shed?: () => Promise<void>;
  /** For `mcp-await/record`, absent inside of steps: a value that a replay gives again. */
  readonly draw?: (place: DrawPlace, fresh: () => DrawnValue) => DrawnValue;
  /** For `mcp-await/record`; absent inside of steps. Runs a function whose result is recorded as a step's is. */
  readonly once?: <T>(place: DrawPlace, fn: () => Promise<T>) => Promise<T>;
}

interface Counter {
  /** Turns that are being run in this process, over all copies of this package. */
  active: number;
  warned: boolean;
}

function storage(): AsyncLocalStorage<CallContext> {
  const slots = globalThis as { [SLOT]?: AsyncLocalStorage<CallContext> };
  slots[SLOT] ??= new AsyncLocalStorage();
  return slots[SLOT];
}

function counter(): Counter {
  const slots = globalThis as { [COUNTER]?: Counter };
  slots[COUNTER] ??= { active: 0, warned: false };
  return slots[COUNTER];
}

function named(): WeakMap<object, CallContext> {
  const slots = globalThis as { [NAMED]?: WeakMap<object, CallContext> };
  slots[NAMED] ??= new WeakMap();
  return slots[NAMED];
}

/** Lets steps name a call by an object that its tool gets: the signal, which a spread of `extra` keeps. */
export function nameCall(signal: object, context: CallContext): void {
  named().set(signal, context);
}

/** The context of the call that `extra`, `ctx` or a `CurrentCall` belongs to; undefined for other objects. */
function contextNamedBy(call: object): CallContext | undefined {
  const { signal, mcpReq } = call as { signal?: unknown; mcpReq?: { signal?: unknown } };
  for (const name of [call, signal, mcpReq?.signal]) {
    const context = typeof name === 'object' && name !== null ? named().get(name) : undefined;
    if (context !== undefined) return context;
  }
  return undefined;
}

/**
 * The call that this code runs in; undefined outside of calls. Read it at the tool's start, and pass it to
 * `step(name, fn, { call })` where the async context is lost or another call's: in a queue's job, a pool, a listener.
 *
 * @example
 * import { currentCall, step } from 'mcp-await';
 *
 * declare const queue: { add<T>(job: () => Promise<T>): Promise<T> };
 *
 * export function chargeInQueue(charge: () => Promise<string>) {
 *   const call = currentCall();
 *   return queue.add(() => step('charge', charge, { call }));
 * }
 */
export function currentCall(): CurrentCall | undefined {
  const context = currentContext();
  if (context === undefined) return undefined;
  const call: CurrentCall = Object.freeze({ kind: 'mcp-await call' });
  named().set(call, context.root?.() ?? context);
  return call;
}

export function currentContext(): CallContext | undefined {
  return storage().getStore();
}

/** The call whose code runs, outside of its steps: what happens there happens again on a replay. */
export function unjournaledCall(): object | undefined {
  const context = currentContext();
  return context?.stepPath === undefined ? context?.call : undefined;
}

export function runInContext<T>(context: CallContext, fn: () => T): T {
  return storage().run(context, fn);
}

/** The context of a request that is not a call: its steps are not recorded. */
export function contextOfRequest(request: object): CallContext {
  return { call: request, step: async (_name, fn) => fn({ idempotencyKey: crypto.randomUUID() }) };
}

/** Runs `fn` outside of any call's context: for work of the server itself. */
export function runOutsideContext<T>(fn: () => T): T {
  return storage().getStore() === undefined ? fn() : storage().exit(fn);
}

export function countActiveTurns(change: 1 | -1): void {
  counter().active += change;
}

/**
 * Runs `fn` once for the life of its call and returns its result, in whichever process the call continues. The result
 * is in the journal before the tool continues, so it must be JSON.
 *
 * The call is that of the async context, unless `options.call` names one. Outside of a call, or where `options.call`
 * names a request that mcp-await does not serve, `fn` runs and nothing is recorded.
 *
 * @throws the error that `fn` throws; on replay an `Error` with the same name, message and code
 * @throws AwaitError `duplicate-step` while another step of this name is open, `ask-in-step` from asks inside of `fn`,
 *   `step-not-json` if the result is not JSON (the step counts as done all the same), `call-over` if its call has ended
 *
 * @example
 * import { step } from 'mcp-await';
 *
 * export function charge(euros: number, pay: (euros: number, key: string) => Promise<string>) {
 *   return step('charge', ({ idempotencyKey }) => pay(euros, idempotencyKey));
 * }
 */
export function step<T>(name: string, fn: StepFunction<T>, options: StepOptions = {}): Promise<T> {
  const context = currentContext();
  const { call } = options;
  if (call === undefined) return context?.step(name, fn) ?? lonely(name, fn);
  if (typeof call !== 'object' || call === null) {
    const message = `step('${name}', …, { call }): call is what the tool was handed (extra, ctx), or what currentCall() gave.`;
    return Promise.reject(optionError(message));
  }
  const other = contextNamedBy(call);
  // A step inside of a step of the same call is a part of it.
  const own = other?.call === context?.call ? context : other;
  return own?.step(name, fn) ?? alone(fn);
}

/**
 * Gives the call up to another process, between two steps: its client is asked to come back at once, and the process
 * that it reaches continues after the last completed step, where this promise resolves. It resolves at once outside
 * of a call, in tasks, and on the revisions with sessions, whose clients cannot bring a call back.
 *
 * @throws AwaitError `shed-in-step` inside of a step, which cannot be interrupted
 *
 * @example
 * import { shed, step } from 'mcp-await';
 *
 * export async function importAll(pages: readonly string[], load: (page: string) => Promise<number>) {
 *   for (const page of pages) {
 *     await step(`load ${page}`, () => load(page));
 *     await shed();
 *   }
 * }
 */
export async function shed(): Promise<void> {
  const context = currentContext();
  if (context?.stepPath !== undefined) {
    throw new AwaitError(
      'shed-in-step',
      `step '${context.stepPath}' calls shed() inside of itself. Call it between steps.`,
    );
  }
  await context?.shed?.();
}

async function lonely<T>(name: string, fn: StepFunction<T>): Promise<T> {
  const state = counter();
  if (state.active > 0) {
    const error = new AwaitError(
      'step-without-context',
      `step('${name}') ran outside the async context of its call, so it is not recorded. If a queue, a pool or an event emitter runs it, name its call: step(name, fn, { call: extra }).`,
    );
    if (process.env.NODE_ENV === 'development') throw error;
    if (!state.warned) {
      state.warned = true;
      process.emitWarning(error.message, { code: 'MCP_AWAIT_STEP_WITHOUT_CONTEXT' });
    }
  }
  return alone(fn);
}

async function alone<T>(fn: StepFunction<T>): Promise<T> {
  return fn({ idempotencyKey: crypto.randomUUID() });
}
