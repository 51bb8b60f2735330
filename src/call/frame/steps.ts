/**
 * The steps of one frame: their names (invariant 13: names in sequence count, nested names are paths, two
 * open ones of one name are an error), and which of them are running.
 */

import { sha256 } from '../../base/digest.ts';
import { AwaitError, defined, isJson, isObject, type Json, optionError } from '../../base/values.ts';
import type { CallRecord, StepOutcome } from '../journal/entries.ts';
import { type CallContext, runInContext, type StepFunction } from './context.ts';
import type { StepAttempt } from './recording.ts';

/** The frame that the steps belong to. */
interface Called {
  readonly context: CallContext;
  readonly over: boolean;
}

export class RunningSteps {
  readonly #callId: string;
  /** How many steps of each name there were; none before the first step, as below. */
  #counts: Map<string, number> | undefined;
  #open: Set<string> | undefined;
  #running: Set<string> | undefined;
  readonly #whenSettled: (() => void)[] = [];
  readonly #closed: (name: string) => AwaitError | undefined;

  /**
   * @param counts of steps that are not attempted again
   * @param closed why no step begins any more: the call is over
   */
  constructor(
    callId: string,
    counts: ReadonlyMap<string, number>,
    closed: (name: string) => AwaitError | undefined,
  ) {
    this.#callId = callId;
    if (counts.size > 0) this.#counts = new Map(counts);
    this.#closed = closed;
  }

  get running(): readonly string[] {
    return [...(this.#running ?? [])];
  }

  /** Resolves once no step is running. */
  settled(): Promise<void> {
    if (!this.#running?.size) return Promise.resolve();
    return new Promise((resolve) => this.#whenSettled.push(resolve));
  }

  /** The context of a call's own code (`path` undefined), or of the code inside of a step. */
  context(call: Called, path: string | undefined, attempt: (step: StepAttempt) => void): CallContext {
    return {
      call,
      ...(path !== undefined && { stepPath: path, root: () => call.context }),
      isLive: () => !call.over,
      step: (name, fn) => this.#attempt(call, path, name, fn, attempt),
    };
  }

  begin(path: string): void {
    this.#running ??= new Set();
    this.#running.add(path);
  }

  done(path: string): void {
    this.#running?.delete(path);
    if (!this.#running?.size) this.abandon();
  }

  /** Running steps can no longer be recorded, so nothing waits for them. */
  abandon(): void {
    this.#running?.clear();
    for (const resolve of this.#whenSettled.splice(0)) resolve();
  }

  #attempt<T>(
    call: Called,
    parent: string | undefined,
    name: string,
    fn: StepFunction<T>,
    attempt: (step: StepAttempt) => void,
  ): Promise<T> {
    if (typeof name !== 'string' || name === '' || /[/#]/.test(name)) {
      return Promise.reject(
        optionError(
          `step(${JSON.stringify(name)}): name a step with a non-empty string without '/' and '#'.`,
        ),
      );
    }
    const closed = this.#closed(name);
    if (closed !== undefined) {
      const rejected = Promise.reject(closed);
      // A tool that does not await it must not end its process.
      rejected.catch(() => {});
      return rejected;
    }
    const base = parent === undefined ? name : `${parent}/${name}`;
    this.#open ??= new Set();
    this.#counts ??= new Map();
    if (this.#open.has(base)) {
      return Promise.reject(
        new AwaitError(
          'duplicate-step',
          `two steps named '${base}' are open at once, and a replay could not distinguish them. Name them apart, such as step(\`${name}-\${item.id}\`, …).`,
        ),
      );
    }
    const count = (this.#counts.get(base) ?? 0) + 1;
    this.#counts.set(base, count);
    this.#open.add(base);
    const path = count === 1 ? base : `${base}#${count}`;
    return this.#begin(call, path, fn, attempt, () => this.#open?.delete(base));
  }

  /** As a step, under a path of its own that no step's name can make: any number may be open. */
  once<T>(
    call: Called,
    path: string,
    fn: () => Promise<T>,
    attempt: (step: StepAttempt) => void,
  ): Promise<T> {
    return this.#begin(call, path, fn, attempt, () => {});
  }

  #begin<T>(
    call: Called,
    path: string,
    fn: StepFunction<T>,
    attempt: (step: StepAttempt) => void,
    onSettled: () => void,
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const settle = (outcome: StepOutcome): void => {
        onSettled();
        try {
          resolve(releaseOutcome(path, outcome) as T);
        } catch (error) {
          reject(error);
        }
      };
      const inside = this.context(call, path, attempt);
      attempt({ kind: 'step', path, run: () => this.#run(inside, path, fn), settle });
    });
  }

  async #run<T>(inside: CallContext, path: string, fn: StepFunction<T>): Promise<StepOutcome> {
    try {
      const handle = { idempotencyKey: idempotencyKey(this.#callId, path) };
      const value = await runInContext(inside, () => fn(handle));
      if (value === undefined) return {};
      // The recorded form of a result: its copy through JSON, or that it is not JSON.
      const copy = copyOf(value);
      return copy === undefined ? { lost: true } : { value: copy };
    } catch (error) {
      return keepError(error);
    }
  }
}

export function stepAfterEnd(name: string, { id, method, params }: CallRecord): AwaitError {
  const target = String(params.name ?? params.uri ?? '');
  return new AwaitError(
    'call-over',
    `step('${name}') is called in the async context of call ${id} (${method} ${target}), which has ended. If a queue or a pool runs it, name its call: step('${name}', fn, { call: extra }).`,
  );
}

// --- the outcome of a step ---

/**
 * The recorded form of a step's outcome, and the outcome that a tool gets: the same bytes live and replayed (invariant
 * 7).
 */

/** A hash of call id and step identity: the same on every attempt (invariant 13). */
export function idempotencyKey(callId: string, path: string): string {
  return sha256(`${callId}\n${path}`);
}

/**
 * Objects nested deeper than this are not recorded: stores serialize recursively, and a step that is done must not fail
 * there.
 */
const DEEPEST = 500;

/**
 * The recorded form of a thrown value: `name`, `message`, a `code` that is a string or a finite number, and a `data`
 * that is JSON. Never throws: a step whose error could not be recorded would run again at each retry.
 */
function keepError(thrown: unknown): StepOutcome {
  const message = read(thrown, 'message');
  const code = read(thrown, 'code');
  const data = copyOf(read(thrown, 'data'));
  const isNumber = typeof code === 'number' && Number.isFinite(code);
  return {
    error: {
      name: textOf(read(thrown, 'name')) ?? 'Error',
      message: textOf(message) ?? textOf(thrown) ?? 'a value that cannot be read was thrown',
      // JSON has no -0.
      ...((typeof code === 'string' || isNumber) && { code: code === 0 ? 0 : code }),
      ...defined({ data }),
    },
  };
}

/** The value's copy through JSON; undefined when it is not JSON, or a getter or a trap of it throws. */
function copyOf(value: unknown): Json | undefined {
  try {
    if (!isJson(value, DEEPEST)) return undefined;
    return JSON.parse(JSON.stringify(value)) as Json;
  } catch {
    return undefined;
  }
}

/** A property of any value at all; undefined when it has none, or reading it throws. */
function read(value: unknown, name: string): unknown {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return undefined;
  try {
    return Reflect.get(value, name);
  } catch {
    return undefined;
  }
}

/** Undefined for undefined, and for values without a text: an object without a prototype, a revoked proxy. */
function textOf(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  try {
    return String(value);
  } catch {
    return undefined;
  }
}

/** Gives a kept outcome to the tool: returns the value, or throws. */
function releaseOutcome(path: string, outcome: StepOutcome): unknown {
  if ('error' in outcome) {
    const { message, name, code, data } = outcome.error;
    throw Object.assign(new Error(message), { name, ...defined({ code, data }) });
  }
  if ('lost' in outcome) {
    throw new AwaitError(
      'step-not-json',
      `The result of step '${path}' is not JSON, and not recorded; the step is done and will not run again. Return plain JSON.`,
    );
  }
  // A copy, so that the tool cannot change the record.
  return isObject(outcome.value) || Array.isArray(outcome.value)
    ? structuredClone(outcome.value)
    : outcome.value;
}
