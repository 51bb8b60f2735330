/**
 * Limits per caller: new calls, requests that continue a call, and bad tokens. `rate-limiter-flexible` counts; this
 * file decides what counts as which, and how a request above a limit is refused.
 */
import RateLimiterMemory from 'rate-limiter-flexible/lib/RateLimiterMemory.js';
import { advice, isObject, type JsonObject, objectOf } from '../../base/values.ts';
import type { Counters } from '../../observe/counters.ts';
import type { Inbound, Reply } from './exchange.ts';
import type { Principal } from './principal.ts';
import { idOf, messagesOf, rpcError } from './reply.ts';

/** So many in each window. */
export interface Rate {
  readonly most: number;
  /** The window, in milliseconds. */
  readonly per: number;
}

/** A limiter of `rate-limiter-flexible`, such as one on Redis that all processes share. */
export interface Limiter {
  consume(key: string, points: number): Promise<unknown>;
  get(key: string): Promise<{ readonly remainingPoints: number; readonly msBeforeNext: number } | null>;
}

/** The option `rateLimit`: how many requests of each kind a caller may make in a time. */
export interface RateLimitOptions {
  /** New calls, and new sessions. Default 600,000 a minute. */
  readonly calls?: Rate | Limiter;
  /** Requests and answers that continue a call, and all other messages. Default 600,000 a minute. */
  readonly resumes?: Rate | Limiter;
  /** Refused tokens and session ids, above which further ones are not checked. Default 600,000 a minute. */
  readonly badTokens?: Rate | Limiter;
  /**
   * The name that is counted under. Default: the caller's stable name; a caller without one is not limited. Behind a
   * trusted proxy, return the address that it forwards.
   */
  readonly caller?: (request: {
    readonly principal: string | undefined;
    /** The address of the connection, where it is known. */
    readonly address: string | undefined;
    readonly header: (name: string) => string | undefined;
    readonly authInfo: JsonObject | undefined;
  }) => string | undefined;
}

const MINUTE = 60_000;
/** A safety limit, not a policy: about the most that one process can serve. */
const MOST: Rate = { most: 600_000, per: MINUTE };
const DEFAULTS = { calls: MOST, resumes: MOST, badTokens: MOST };

type LimitedKind = keyof typeof DEFAULTS;

/** Requests that begin a call, or a session: both cost memory. */
const BEGINS: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read', 'initialize']);

export class RateLimits {
  readonly #limiters: Readonly<Record<LimitedKind, Limiter>>;
  readonly #options: RateLimitOptions;
  readonly #principal: Principal;
  readonly #counters: Counters;
  readonly #warn: (message: string, detail: JsonObject) => void;

  constructor(
    options: RateLimitOptions,
    principal: Principal,
    counters: Counters,
    warn: (message: string, detail: JsonObject) => void,
  ) {
    this.#options = options;
    this.#principal = principal;
    this.#counters = counters;
    this.#warn = warn;
    const limiterOf = (kind: LimitedKind): Limiter => {
      const given = options[kind] ?? DEFAULTS[kind];
      if ('consume' in given) return given;
      return new RateLimiterMemory({ points: given.most, duration: given.per / 1_000 });
    };
    this.#limiters = {
      calls: limiterOf('calls'),
      resumes: limiterOf('resumes'),
      badTokens: limiterOf('badTokens'),
    };
  }

  #callerOf(inbound: Inbound): string | undefined {
    const principal = this.#principal(inbound.authInfo);
    const { caller } = this.#options;
    if (caller === undefined) return principal;
    const { address, authInfo } = inbound;
    return caller({ principal, address, authInfo, header: (name) => inbound.header(name) });
  }

  /** The refusal of a request above a limit; undefined if the request may go on. */
  refuse(inbound: Inbound, body: unknown): Promise<Reply | undefined> | undefined {
    const caller = this.#callerOf(inbound);
    return caller === undefined ? undefined : this.#refuse(caller, inbound, body);
  }

  async #refuse(caller: string, inbound: Inbound, body: unknown): Promise<Reply | undefined> {
    const { begins, goesOn, others } = countIn(body);
    const session = inbound.header('mcp-session-id') ?? inbound.query('sessionId');
    const hasToken = goesOn > 0 || session !== undefined;
    const wait =
      (hasToken ? await this.#exhausted(caller) : undefined) ??
      (begins > 0 ? await this.#consume('calls', caller, begins) : undefined) ??
      (goesOn + others > 0 ? await this.#consume('resumes', caller, goesOn + others) : undefined);
    if (wait === undefined) return undefined;
    const seconds = Math.max(Math.ceil(wait / 1_000), 1);
    const message = `Too many requests; try again in ${seconds} s`;
    const reply = rpcError(429, -32000, message, idOf(body), advice('rate-limit', true));
    return { ...reply, headers: { ...reply.headers, 'retry-after': String(seconds) } };
  }

  /** A token that came with this request was refused. */
  async badToken(inbound: Inbound): Promise<void> {
    this.#counters.badTokens += 1;
    const caller = this.#callerOf(inbound);
    if (caller !== undefined) await this.#limiters.badTokens.consume(caller, 1).catch(() => {});
  }

  /** @returns the milliseconds until there may be more of it */
  async #consume(kind: 'calls' | 'resumes', caller: string, points: number): Promise<number | undefined> {
    try {
      await this.#limiters[kind].consume(caller, points);
      return undefined;
    } catch (error) {
      // An error, or what is left of its limit.
      const { msBeforeNext } = objectOf(error);
      if (typeof msBeforeNext !== 'number') return this.#failed(error);
      this.#counters[kind === 'calls' ? 'limitedCalls' : 'limitedResumes'] += 1;
      return msBeforeNext;
    }
  }

  async #exhausted(caller: string): Promise<number | undefined> {
    try {
      const state = await this.#limiters.badTokens.get(caller);
      if (state === null || state.remainingPoints > 0 || state.msBeforeNext <= 0) return undefined;
      this.#counters.limitedBadTokens += 1;
      return state.msBeforeNext;
    } catch (error) {
      return this.#failed(error);
    }
  }

  /** A limiter that fails must not lock out all callers. */
  #failed(error: unknown): undefined {
    this.#warn('a rate limiter failed; its limit is not held meanwhile', { error });
    return undefined;
  }
}

/** Every message is one of the three, whatever it is. */
function countIn(body: unknown): { begins: number; goesOn: number; others: number } {
  let begins = 0;
  let goesOn = 0;
  const messages = messagesOf(body);
  for (const message of messages) {
    if (!isObject(message)) continue;
    const { method, params, id, request_state: state } = message;
    if (typeof method !== 'string') goesOn += id === undefined ? 0 : 1;
    else if (state !== undefined || (isObject(params) && params.requestState !== undefined)) goesOn += 1;
    else if (method === 'tasks/input_response') goesOn += 1;
    else if (BEGINS.has(method)) begins += 1;
  }
  return { begins, goesOn, others: messages.length - begins - goesOn };
}
