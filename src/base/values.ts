/** What every room uses: JSON values, the error of this package, time, and turns that callers share. */

/** A JSON value, which a journal can hold. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Plain JSON objects as on the wire: properties may be absent, and are `unknown` until checked. */
export type JsonObject = Record<string, unknown>;

/** Methods that many parts look for. */
export const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';
export const CANCEL = 'notifications/cancelled';
export const ELICIT = 'elicitation/create';
/** The reason of a cancellation at a server elsewhere whose call may go on in another. */
export const WENT_ON = 'mcp-await: the call continues elsewhere';

/** The JSON-RPC error of params that make no sense. */
export const invalidParams = (why: string) => ({ code: -32602, message: `Invalid params: ${why}` });

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value, if it is an object; else an empty one. */
export function objectOf(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

/**
 * Whether `JSON.parse(JSON.stringify(value))` would give the value back. Properties that are `undefined` count as
 * absent; a Date, a Map, an instance of a class, a BigInt, NaN and cycles are not JSON.
 * @param deepest how many objects and arrays may be inside of one another
 */
export function isJson(value: unknown, deepest = Infinity): boolean {
  return isJsonIn(value, [], deepest);
}

function isJsonIn(value: unknown, ancestors: readonly object[], deepest: number): boolean {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return true;
    case 'number':
      return Number.isFinite(value);
    case 'object':
      break;
    default:
      return false;
  }
  if (value === null) return true;
  if (ancestors.includes(value) || ancestors.length >= deepest) return false;
  const path = [...ancestors, value];
  if (Array.isArray(value)) return value.every((item) => isJsonIn(item, path, deepest));
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  if ('toJSON' in value) return false;
  return Object.values(value).every((item) => item === undefined || isJsonIn(item, path, deepest));
}

/** One of these makes each character of its string take two bytes. */
const WIDE = /[\u0100-\uffff]/;

/**
 * About how many bytes of memory a JSON value takes: an empty object takes fifty, and two characters of JSON.
 * @returns Infinity for a value with an infinite number: `JSON.parse` makes one of 1e999, and JSON has none
 */
export function memoryOf(value: unknown): number {
  if (typeof value === 'string') return 16 + (WIDE.test(value) ? 2 : 1) * value.length;
  if (typeof value === 'number') return Number.isFinite(value) ? 8 : Infinity;
  if (typeof value !== 'object' || value === null) return 8;
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + 8 + memoryOf(item), 32);
  let sum = 56;
  for (const key of Object.keys(value)) sum += 24 + key.length + memoryOf((value as JsonObject)[key]);
  return sum;
}

/** What a stranger sent, as text: `String` throws for `{"toString": 1}`. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

/** JSON with the keys of every object in order, so that equal values give equal text. */
export function canonical(value: unknown): string {
  return JSON.stringify(inOrder(value)) ?? 'null';
}

/** A copy with its keys in order; JSON is written faster from that than by a replacer. */
function inOrder(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof (value as JsonObject).toJSON === 'function')
    return inOrder((value as { toJSON(): unknown }).toJSON());
  const copy: JsonObject = {};
  for (const key of Object.keys(value).sort()) {
    const inner = inOrder((value as JsonObject)[key]);
    if (key === '__proto__') Object.defineProperty(copy, key, { value: inner, enumerable: true });
    else copy[key] = inner;
  }
  return copy;
}

type Given = NonNullable<unknown> | null;

/** The members that are not undefined: JSON, headers and `exactOptionalPropertyTypes` take a member or none. */
export function defined<T extends object>(members: T): { [K in keyof T]?: T[K] & Given } {
  const kept: { [K in keyof T]?: T[K] & Given } = {};
  for (const key in members) {
    const value = members[key];
    if (value !== undefined) kept[key] = value;
  }
  return kept;
}

/**
 * The resources that a client subscribed to. One URI may have 65,536 characters; of more than one, each takes sixteen
 * beside its own. The sum is kept, since strangers send hundreds of them in one body.
 */
export class Subscriptions extends Set<string> {
  #room = 65_552;

  hasRoomFor(uri: string): boolean {
    return this.has(uri) || uri.length + 16 <= this.#room;
  }

  override add(uri: string): this {
    if (!this.has(uri)) this.#room -= uri.length + 16;
    return super.add(uri);
  }

  override delete(uri: string): boolean {
    if (this.has(uri)) this.#room += uri.length + 16;
    return super.delete(uri);
  }
}

/** Drops the oldest entries of a Map or a Set, which keep the order of insertion, down to `most`. */
export function keepNewest<K>(
  kept: { readonly size: number; keys(): Iterable<K>; delete(key: K): boolean },
  most: number,
): void {
  for (const oldest of kept.keys()) {
    if (kept.size <= most) return;
    kept.delete(oldest);
  }
}

/** Drops the oldest entries of a Map that do not fit beside the newer ones into 256 KiB of memory. */
export function keepFitting<K>(kept: Map<K, unknown>): void {
  let room = 262_144;
  for (const entry of [...kept].reverse()) {
    const bytes = memoryOf(entry);
    if (bytes > room) kept.delete(entry[0]);
    else room -= bytes;
  }
}

/**
 * The error class of this package. `code` is literal and stable; the message says what to do next. A client never sees
 * these texts: the edges write fixed sentences, and the logger gets the error.
 *
 * @example
 * import { AwaitError, step } from 'mcp-await';
 *
 * export async function once(name: string, work: () => Promise<void>) {
 *   try {
 *     await step(name, work);
 *   } catch (error) {
 *     if (error instanceof AwaitError && error.code === 'duplicate-step') return;
 *     throw error;
 *   }
 * }
 */
export class AwaitError extends Error {
  readonly code: AwaitErrorCode;
  /** Of an error that ends a call: its steps that are done. A client is told their names, and not to call again. */
  steps: readonly string[] = [];

  constructor(code: AwaitErrorCode, message: string, cause?: unknown) {
    super(message, defined({ cause }));
    this.name = 'AwaitError';
    this.code = code;
  }

  /** Wraps anything thrown, and leaves an AwaitError as it is. */
  static from(thrown: unknown, code: AwaitErrorCode = 'internal'): AwaitError {
    if (thrown instanceof AwaitError) return thrown;
    return new AwaitError(code, reasonOf(thrown), thrown);
  }
}

export function hasCode(thrown: unknown, code: AwaitErrorCode): thrown is AwaitError {
  return thrown instanceof AwaitError && thrown.code === code;
}

/** @returns an error with the code `bad-token`: the caller has no such call, or place in one, any more */
export function badToken(message: string, cause?: unknown): AwaitError {
  return new AwaitError('bad-token', message, cause);
}

/** @returns an error with the code `bad-option` */
export function optionError(message: string, cause?: unknown): AwaitError {
  return new AwaitError('bad-option', message, cause);
}

/** Why an `AwaitError` was thrown. */
export type AwaitErrorCode =
  /** an option of `createAwaitHandler` or the command line makes no sense */
  | 'bad-option'
  /** a token failed one of its checks; which one is in the message, for the logger alone */
  | 'bad-token'
  /** a client sent a message that cannot be used */
  | 'bad-answer'
  /** the tool took another way on replay than its journal records */
  | 'divergence'
  /** the text of a question changed a second time under replay */
  | 'question-drift'
  /** the call would have to be run again from its start, which the option `replay` forbids */
  | 'replay-refused'
  /** `elicit` and the like inside of `step` */
  | 'ask-in-step'
  /** `shed` inside of `step` */
  | 'shed-in-step'
  /** two steps of one name open at once */
  | 'duplicate-step'
  /** a step's result is not JSON, so it cannot be kept */
  | 'step-not-json'
  /** a replay reached a response that `mcp-await/record` could not record, of a request that must not be sent twice */
  | 'fetch-not-kept'
  /** an ask was made in the async context of another call than its server's, or for a request that is over */
  | 'wrong-call'
  /** a step was called in a call that is over, or named one */
  | 'call-over'
  /** a step ran outside the async context of its call */
  | 'step-without-context'
  /** the client lacks the capability for an ask */
  | 'capability'
  /** a call waited for its client until its `ttl` was over */
  | 'expired'
  /** one of `limits` was reached */
  | 'limit'
  /** this process runs as many requests as `limits` allow; the same request succeeds in a moment, or elsewhere */
  | 'no-room'
  /** the store failed */
  | 'store'
  /** another instance owns the turn */
  | 'fenced'
  /** another instance is still running the turn after 30 seconds */
  | 'busy'
  /** the format of a record is not one this version reads */
  | 'format'
  /** (`mcp-await/client`) a server's stream ended where the call cannot continue */
  | 'stream'
  /** (`mcp-await/client`) a server sent a response that its revision does not have */
  | 'bad-response'
  /** a server that runs elsewhere (a child process, a remote one) could not be started, or ended */
  | 'host-gone'
  /** the handler was closed */
  | 'closed'
  | 'internal';

/** `1 call`, `2 calls`. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

/** @param what what the option must be instead */
export function badOption(name: string, what: string): AwaitError {
  return optionError(`option ${name} ${what}.`);
}

/** @throws AwaitError `bad-option`, unless the option is such a number */
export function checkAtLeast(least: number, name: string, value: unknown): void {
  if (!(Number.isFinite(value) && Number(value) >= least))
    throw badOption(name, `must be a number of at least ${least}, not ${String(value)}`);
}

// --- time, a parameter of the engine: a simulation can crash, freeze and skew a process at any moment ---

export interface Repeating {
  cancel(): void;
}

export interface Timer extends Repeating {
  /** Lets the process end although the timer is still to come. */
  unref(): Timer;
}

export interface Clock {
  /** Milliseconds since the epoch. It may jump either way. */
  now(): number;
  /** Milliseconds since some moment of this process. It never goes back. */
  elapsed(): number;
  /** @param milliseconds below 0: as 0 */
  after(milliseconds: number, fn: () => void): Timer;
  /** In a later turn of the event loop. */
  soon(fn: () => void): void;
}

/** Node's longest timer, in milliseconds. */
const LONGEST = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after: (milliseconds, fn) => {
    const timeout = setTimeout(fn, Math.max(0, Math.min(milliseconds, LONGEST)));
    const timer: Timer = {
      cancel: () => clearTimeout(timeout),
      unref: () => {
        timeout.unref();
        return timer;
      },
    };
    return timer;
  },
  soon: (fn) => void setImmediate(fn),
};

export function sleep(clock: Clock, milliseconds: number): Promise<void> {
  return new Promise((resolve) => clock.after(milliseconds, resolve));
}

/** Calls again and again, each time that long after the last; it keeps no process alive. */
export function every(clock: Clock, milliseconds: number, fn: () => void): Repeating {
  let timer: Timer;
  const arm = (): void => {
    timer = clock
      .after(milliseconds, () => {
        arm();
        fn();
      })
      .unref();
  };
  arm();
  return { cancel: () => timer.cancel() };
}

/** Calls once the clock says that it is time, which no timer says: one may fire early, and the longest is 25 days. */
export function callAt(clock: Clock, time: number, fn: () => void): Repeating {
  let timer: Timer;
  const arm = (): void => {
    timer = clock.after(time - clock.now(), () => (clock.now() < time ? arm() : fn())).unref();
  };
  arm();
  return { cancel: () => timer.cancel() };
}

/** What was thrown, in words. */
export function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** A promise, and what resolves it. */
export function deferred(): Deferred<void> & { resolve: () => void };
export function deferred<T>(): Deferred<T>;
export function deferred<T>(): Deferred<T> {
  let resolve: Deferred<T>['resolve'] = () => {};
  let reject: Deferred<T>['reject'] = () => {};
  const promise = new Promise<T>((done, failed) => {
    resolve = done;
    reject = failed;
  });
  return { promise, resolve, reject };
}

export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T | PromiseLike<T>) => void;
  readonly reject: (error: unknown) => void;
}

/** The next turn of the event loop: others have theirs first. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => systemClock.soon(resolve));

/** Waits until a promise settles, either way, or `wait` milliseconds have passed. */
export async function within(clock: Clock, wait: number, promise: Promise<unknown>): Promise<void> {
  let timer: Timer | undefined;
  await new Promise<unknown>((resolve) => {
    timer = clock.after(wait, resolve as () => void);
    promise.then(resolve, resolve);
  });
  timer?.cancel();
}

// --- what a client may do about an error of this package; sentences are for people ---

const ADVICE = 'mcp-await';

/** Why a request failed: one for each sentence, so that it tells no more than the sentence does. */
export type Reason =
  | 'bad-token'
  | 'bad-answer'
  | 'store'
  | 'busy'
  | 'divergence'
  | 'replay-refused'
  | 'expired'
  | 'host-gone'
  | 'closed'
  | 'limit'
  | 'no-room'
  | 'not-ready'
  | 'rate-limit';

/** @param retry whether the same request may be sent again: it may succeed, and no completed step runs twice */
export function advice(reason: Reason, retry = false): { readonly [ADVICE]: object } {
  return { [ADVICE]: { reason, retry } };
}

/** Data of errors that say that a call was not passed on to its server: they are no outcome of it. */
export const unpassed = new WeakSet<object>();

export function isUnpassed(response: object): boolean {
  return 'error' in response && unpassed.has(objectOf(objectOf(response.error).data));
}

/** Whether the same request may be sent again; undefined if the error does not say. */
export function retryIn(data: unknown): boolean | undefined {
  const given = isObject(data) ? data[ADVICE] : undefined;
  return isObject(given) && typeof given.retry === 'boolean' ? given.retry : undefined;
}

/** What is longer takes a turn of the event loop to be parsed and handled. */
export const LONG = 65_536;
/** What a request takes of a turn at least: many may come in one piece, and their results be long. */
export const SHARE = 1 / 4;

/** What a text takes of a turn of the event loop. @param length in characters */
export function shareOf(length: number): number {
  return Math.min(1, Math.max(SHARE, length / LONG));
}

/** Of work, in a row. */
interface Piece {
  readonly share: number;
  readonly go: () => void;
  next?: Piece;
}

/** Shares one turn of the event loop after the other among callers; or a whole whose parts its users give back (`back`). */
export class LoopTurns {
  readonly #isTurn: boolean;
  #free = 1;
  /** The first and the last piece in each owner's row. */
  readonly #first = new Map<unknown, Piece>();
  readonly #last = new Map<unknown, Piece>();

  /** @param isTurn whether each turn of the event loop frees the whole; if not, users free their parts by `back` */
  constructor(isTurn = true) {
    this.#isTurn = isTurn;
  }

  /**
   * Resolves when so much is free, one piece of each owner after the other.
   * @param share of the whole, at most 1
   * @param owner whose pieces wait for one another, in their order
   */
  next(share = 1, owner?: unknown): Promise<void> {
    // A turn that another request waits for may never come.
    if (isPerRequest()) return nextTurn();
    return new Promise((go) => {
      const [piece, last] = [{ share, go }, this.#last.get(owner)];
      if (last === undefined) this.#first.set(owner, piece);
      else last.next = piece;
      this.#last.set(owner, piece);
      this.#goOn();
    });
  }

  /** Whether a piece need not wait. */
  get isFree(): boolean {
    return this.#first.size === 0 && this.#free > 0;
  }

  back(share: number): void {
    this.#free = Math.min(1, this.#free + share);
    this.#goOn();
  }

  #goOn(): void {
    for (const [owner, { share, go, next }] of this.#first) {
      if (this.#free === 0) return;
      // It waits at the front until more is free; a smaller piece of another owner may go before it.
      if (this.#free < share) continue;
      if (this.#isTurn && this.#free === 1) systemClock.soon(() => this.back(1));
      this.#free -= share;
      this.#first.delete(owner);
      if (next === undefined) this.#last.delete(owner);
      else this.#first.set(owner, next);
      go();
    }
  }
}

/** What one read takes of the places. */
const READ = 1 / 8;
/** What one reply takes of what is made of long values. */
const REPLY = 1 / 4;
const places = new LoopTurns(false);
const turns = new LoopTurns();
const replies = new LoopTurns(false);
/** Of outcomes that need no store: they do not wait for it. */
const direct = new LoopTurns(false);

/** Waits for so much of a pool. @returns gives it back, in the next turn of the event loop */
async function partOf(pool: LoopTurns, share: number, owner: string | undefined): Promise<() => void> {
  await pool.next(share, owner);
  return () => systemClock.soon(() => pool.back(share));
}

/**
 * Waits for one of the eight places of reads whose length is unknown: however many requests read, the process holds at
 * most eight records, or pages of them, that their readers have not got yet. Owners get places in turn.
 * @param owner the known caller that the read is for; all strangers count as one owner
 * @returns gives the place back
 */
export function placeFor(owner: string | undefined): Promise<() => void> {
  return partOf(places, READ, owner);
}

/** Waits for a turn of the event loop before the reader gets a long value. */
export async function given<T>(found: T, owner: string | undefined): Promise<T> {
  if (memoryOf(found) > LONG) await turns.next(1, owner);
  return found;
}

/**
 * Waits until a reply may be made of a long value in the store: four are in work at once, of owners in turn. Who calls it
 * holds no such value yet.
 * @param sent settles once the reply is on its way, or never will be
 */
export async function replyFor(owner: string | undefined, sent: Promise<unknown> | undefined): Promise<void> {
  const end = await partOf(replies, REPLY, owner);
  void Promise.resolve(sent).then(end);
}

/**
 * Uses a tool's outcome. Of long ones four are in use at once; the others wait, as text outside of the heap.
 * @param isStored whether its use waits for the store
 * @param use settles once nothing needs the value any more but what runs right after that
 */
export function inPlace<T, U>(
  value: T,
  owner: string | undefined,
  isStored: () => boolean,
  use: (value: T) => Promise<U>,
): Promise<U> {
  if (leftBy(value, LONG) >= 0) return use(value);
  const pool = isStored() ? replies : direct;
  const taken = pool.isFree ? kept(value) : packed(value);
  return partOf(pool, REPLY, owner).then((end) => use(taken()).finally(end));
}

/** What is left of so much memory, about, beside a value that may be no JSON; less than 0 if that is too large. */
function leftBy(value: unknown, room: number): number {
  if (typeof value === 'string') return room - value.length;
  let left = room;
  for (const key in value as object) if (left >= 0) left = leftBy((value as JsonObject)[key], left - 32);
  return left;
}

/** Functions of their own, here and below: those of `inPlace` would keep the value as well. */
function kept<T>(value: T): () => T {
  return () => value;
}

function packed<T>(value: T): () => T {
  try {
    const bytes = Buffer.from(JSON.stringify(value));
    return () => JSON.parse(String(bytes)) as T;
  } catch {
    // Who uses it says what is wrong with it.
    return kept(value);
  }
}

/** Reads one record in a place (`placeFor`). */
export async function readFor<T>(owner: string | undefined, read: () => Promise<T>): Promise<T> {
  const end = await placeFor(owner);
  try {
    return await given(await read(), owner);
  } finally {
    end();
  }
}

/**
 * Whether objects of one request are unusable in the next: on Cloudflare Workers a timer, a stream or a pending promise
 * belongs to the request that made it, and none may be made while the module loads.
 */
export function isPerRequest(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers';
}
