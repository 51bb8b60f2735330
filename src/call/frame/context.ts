/**
 * The async context of a call, and `step`, which finds its call through it.
 *
 * The context lives at a global symbol, so that the command line's copy of this package and the tool's copy
 * share it; what runs in it is therefore an interface with a version in its name, never a class.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import process from 'node:process';
import { AwaitError } from '../../base/error.ts';
import type { DrawnValue } from '../journal/drawn.ts';
import type { DrawPlace } from './drawn.ts';

const SLOT = Symbol.for('mcp-await.context.1');
const COUNTER = Symbol.for('mcp-await.turns.1');
const NAMED = Symbol.for('mcp-await.calls.1');

export interface StepHandle {
  /**
   * The same on every attempt at this step, whichever process makes it: hand it to what the step calls
   * (a payment service, a mailer), so that an attempt that was cut off does not act twice.
   */
  readonly idempotencyKey: string;
}

export type StepFunction<T> = (handle: StepHandle) => T | Promise<T>;

export interface StepOptions {
  /**
   * The call that the step belongs to, where the async context may be another's: what the tool was handed (`extra` or a
   * spread of it; `ctx`), or what `currentCall()` gave as the tool began.
   */
  readonly call?: object | undefined;
}

/** Names a call: see `currentCall`. */
export interface CurrentCall {
  readonly kind: 'mcp-await call';
}

/** What a running call, or a step inside of one, puts into the async context. */
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
  /** For `mcp-await/record`, absent inside of steps: does what comes to JSON as a step does. */
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

/** Lets steps name a call by an object that its tool is handed: the signal, which a spread of `extra` keeps. */
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
 * The call that this code runs in, to be handed to `step(name, fn, { call })` where the async context is lost or
 * another's: in a job of a queue, in a pool, in a listener. Take it as the tool begins. Undefined outside of calls.
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

export function runInContext<T>(context: CallContext, fn: () => T): T {
  return storage().run(context, fn);
}

/** The context of a request that is no call: nothing of it is journaled. */
export function contextOfRequest(request: object): CallContext {
  return { call: request, step: async (_name, fn) => fn({ idempotencyKey: randomUUID() }) };
}

/** Runs `fn` in no call's context: what a server sets up for itself belongs to no call. */
export function runOutsideContext<T>(fn: () => T): T {
  return storage().getStore() === undefined ? fn() : storage().exit(fn);
}

export function countActiveTurns(change: 1 | -1): void {
  counter().active += change;
}

/**
 * Runs `fn` once for the life of the call it is in, and gives back what it returned, on whichever process
 * the call goes on. The result is kept in the journal before the tool goes on, so it must be JSON.
 *
 * Outside of a call `fn` is just run. The call is that of the async context, unless `options.call` names it; where
 * that is none that mcp-await serves, `fn` is just run.
 *
 * @example
 * // A queue runs a job in the async context of the job before it, which may be another caller's.
 * queue.add(() => step('charge', charge, { call: extra }));
 *
 * @throws what `fn` throws, also when it is replayed (as an `Error` with the same name, message and code)
 * @throws AwaitError `duplicate-step` while another step of this name is open, `ask-in-step` from asks made
 *   inside of `fn`, `step-not-json` when the result cannot be kept (the step counts as done all the same),
 *   `call-over` when its call has come to an end
 */
export function step<T>(name: string, fn: StepFunction<T>, options: StepOptions = {}): Promise<T> {
  const context = currentContext();
  const { call } = options;
  if (call === undefined) return context?.step(name, fn) ?? lonely(name, fn);
  if (typeof call !== 'object' || call === null) {
    const message = `step('${name}', …, { call }): call is what the tool was handed (extra, ctx), or what currentCall() gave.`;
    return Promise.reject(new AwaitError('bad-option', message));
  }
  const other = contextNamedBy(call);
  // A step inside of a step of the same call is a part of it.
  const own = other?.call === context?.call ? context : other;
  return own?.step(name, fn) ?? alone(fn);
}

/**
 * Gives the call up to another process, between two steps: its client is told to come back at once, and whichever
 * process it comes to goes on after the last completed step. It resolves there. Where the client cannot bring a
 * call back (the revisions with sessions, and tasks), and outside of a call, it resolves at once.
 *
 * @throws AwaitError `shed-in-step` inside of a step, which is done in one go
 */
export async function shed(): Promise<void> {
  const context = currentContext();
  if (context?.stepPath !== undefined) {
    throw new AwaitError(
      'shed-in-step',
      `step '${context.stepPath}' calls shed() inside of itself: a step is done in one go. Call it between steps.`,
    );
  }
  await context?.shed?.();
}

async function lonely<T>(name: string, fn: StepFunction<T>): Promise<T> {
  const state = counter();
  if (state.active > 0) {
    const error = new AwaitError(
      'step-without-context',
      `step('${name}') ran outside the async context of its call, so it is not journaled. Name its call, step(name, fn, { call: extra }), where a queue, a pool or an event emitter runs it.`,
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
  return fn({ idempotencyKey: randomUUID() });
}
