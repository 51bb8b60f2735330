/**
 * Bounds (invariant 14): each has a default and a named error. `LIMITS` is what the option `limits` sets, and the source
 * of its type, of its check and of the table in docs/options.md. The others are constants, or a share of one of them.
 */
import { badOption, checkAtLeast, isObject } from '../base/values.ts';

/** The limits that can be set, with their defaults. */
export const LIMITS = {
  /**
   * Asks of one call, in all its turns.
   * @remarks Raise it for a tool that asks in a long loop.
   */
  asks: 100,
  /**
   * Turns of one call.
   * @remarks Raise it together with `asks`, for a tool that asks one question after another.
   */
  rounds: 100,
  /**
   * Bytes of one call's folded journal, as JSON; of a task's, with the asks and answers since it is one.
   * @remarks Raise it for steps or answers with large results. With `state: 'sealed'` a token must carry the journal, and
   * holds at most 1 Mi characters.
   */
  journalBytes: 1_048_576,
  /**
   * Bytes of a request body, of a message on stdio.
   * @remarks Raise it for tools that take files as arguments.
   */
  bodyBytes: 4_194_304,
  /**
   * Bytes that the arguments of running calls take in memory, as estimated; a quarter of them are one known caller's, or
   * all anonymous callers'. Counted are requests as they were sent, and cancelled ones as long as their tools run, with
   * what these were answered and 32 KiB each. Half as many may be taken by requests that have no reply yet.
   * @remarks Lower it where the process has less than 2 GiB of memory, to an eighth of its heap, and not below 16 times
   * `bodyBytes`: 64 MiB for 512.
   */
  argumentBytes: 536_870_912,
  /**
   * Bytes of all bodies and WebSocket messages that are being received. All anonymous callers have half of it, and one
   * caller has half at most; of those in a share that is used up, the one that has taken longest is broken off.
   * @remarks Raise it for many large uploads at once; double it for a server whose callers are all anonymous.
   */
  receivedBytes: 67_108_864,
  /**
   * Bytes of all replies that wait for clients to read, in the same shares; the one that has waited longest is broken
   * off. On stdio: of the one client.
   * @remarks Raise it for large results to slow clients; double it for a server whose callers are all anonymous.
   */
  unreadBytes: 67_108_864,
  /**
   * Requests that this process serves at once, new calls and those that are continued; more are refused with 503. Half
   * of them are all anonymous callers'.
   * @remarks Raise it where many calls of the 2025 revisions wait for their users; lower it for tools that need much
   * memory.
   */
  calls: 10_000,
  /**
   * Of these, requests of one known caller, or of anonymous ones of one address.
   * @remarks Raise it where one caller is a gateway for many users; lower it where callers compete.
   */
  callerCalls: 2_000,
  /**
   * Frames kept parked in this process. A fifth of them are one known caller's. Beyond that its least recently used
   * ones are dropped; where all are in use, anonymous callers' first, then those of the known caller that has most.
   * @remarks Raise it where a replay is expensive and memory is not; 0 replays every call.
   */
  frames: 1_000,
  /**
   * Bytes of all journals in this process's memory, if no other store is given; a call that would be suspended beyond it
   * is refused. A quarter as many for the messages of streams, of which the oldest are deleted. A quarter of both is
   * one caller's, and all anonymous callers' together; in a shared store too, of what this process wrote.
   * @remarks Lower it in a small process without a store; raise it where one caller leaves many calls.
   */
  storedBytes: 268_435_456,
  /**
   * Sessions kept in this process, of each wire that has sessions. The least recently used idle ones make room; one that
   * is connected, or has a running or suspended call, stays, and new ones are refused with 503. A fifth of them are one
   * known caller's, or one address's; half of them all anonymous callers'.
   * @remarks Raise it for more clients of the 2025 revisions; each costs a server instance.
   */
  sessions: 1_000,
  /**
   * How long an idle session's instance is kept, in milliseconds.
   * @remarks Lower it for servers that hold much memory; raise it for clients that come back late and need the
   * instance's memory.
   */
  sessionIdle: 1_800_000,
  /**
   * How long the owner of a turn may be silent before another process takes it over, in milliseconds.
   * @remarks Raise it where processes pause for seconds, or the store does; lower it to recover faster from a crash.
   */
  lease: 10_000,
  /**
   * How long running turns may take to end when the process leaves, in milliseconds, before they are handed over to
   * another one.
   * @remarks Set it below the time that your platform leaves between SIGTERM and SIGKILL, and above your longest step.
   */
  drain: 10_000,
  /**
   * How late the event loop may be, in milliseconds, before a call of a revision with round trips is given up between
   * two steps, for its client to bring to another process.
   * @remarks Set it where several processes share a store, and tools compute.
   */
  shedAbove: Infinity,
  /**
   * How long the stream of a request can be resumed after its last event, in milliseconds; at most `ttl` after the
   * request. On a stream of a session, and on a GET of `workspace-sse`: how long each message is kept for a client that
   * reconnects.
   * @remarks Lower it where content must be gone soon; raise it for clients that are offline for hours.
   */
  streamLife: 3_600_000,
  /**
   * Time between two comments (`ping` events on `workspace-sse`) that keep an idle stream's connection open, in
   * milliseconds.
   * @remarks Set it below the idle time-out of the proxies in front.
   */
  keepAlive: 15_000,
  /**
   * With tasks on, how long a call may run without an ask before it becomes a task, if its client accepts tasks, in
   * milliseconds.
   * @remarks Lower it where a proxy ends requests after a few seconds.
   */
  taskAfter: 10_000,
  /**
   * Tasks that run in this process. Above it a new task is refused, a call that would become a task late stays a call,
   * and no other process's tasks are taken over. A tenth of them are one known caller's, or one address's; a quarter all
   * anonymous callers'.
   * @remarks Lower it for tools that need much memory or processor time.
   */
  tasks: 2_000,
};

/** The option `limits`. */
export type LimitOptions = { readonly [Name in keyof typeof LIMITS]?: number };

/** Bounds that are no option: nobody needed another value. Only tests set them. */
const CONSTANTS = {
  /** Characters of a token; longer ones are refused unread. */
  tokenBytes: 1_048_576,
  /**
   * Values in a request body: members of its objects and elements of its arrays. A fiftieth of them outside of the
   * arguments of `tools/call`, since schemas check each.
   */
  bodyValues: 100_000,
  /** Messages of one body, where a revision takes an array of them. */
  batch: 100,
  /** Bytes of journal behind the parked frames of one caller; anonymous callers count as one. */
  callerBytes: 67_108_864,
  /** How long a parked frame is kept, in milliseconds. */
  frameIdle: 600_000,
  /** Outcomes of one caller that are kept for a repeated request: of calls in the in-memory store, of turns without one. */
  outcomes: 1_000,
  /** Notifications held for a parked frame, and for a session without a stream. */
  heldNotifications: 100,
  /** Times a tool is run again for the same -32042 before the call ends. */
  reruns: 3,
  /** How long a request waits for a turn that another process runs, in milliseconds. */
  turnWait: 30_000,
  /** How long the process that keeps a call's frame may take to accept its next turn, in milliseconds. */
  handoffWait: 500,
  /**
   * Events kept of one stream for a client that comes back; the oldest are deleted. Up to eight times as many for
   * as long as a connection in the process that appends has them before it.
   */
  streamEvents: 500,
  /**
   * Streams kept of one session by each process; the oldest finished one is deleted. On 2024-11-05, where a session has
   * one stream, a session's running requests.
   */
  streams: 100,
  /** Characters of a `Last-Event-ID`; longer ones are refused unread. */
  eventIdBytes: 8_192,
  /**
   * Longest pause between polls of a stream that another process appends to, without a relay, in milliseconds; with a
   * relay it is five times as long.
   */
  streamPoll: 1_000,
  /**
   * How long the reply to a request of a session is held back, in milliseconds, while the request has made no ask, no
   * step and no event: one that is over by then is one response, and nothing of it is stored.
   */
  heldReply: 50,
  /** How long a client of a stream may read nothing while bytes wait for it, in milliseconds. */
  stalled: 30_000,
  /** When a task's client should look again, in milliseconds. */
  taskPoll: 500,
};

/** Of one caller, or of all anonymous ones: a part of a larger whole. */
const SHARES = {
  callerArgumentBytes: ['argumentBytes', 4],
  anonymousCalls: ['calls', 2],
  callerFrames: ['frames', 5],
  callerStoredBytes: ['storedBytes', 4],
  callerSessions: ['sessions', 5],
  anonymousSessions: ['sessions', 2],
  callerTasks: ['tasks', 10],
  anonymousTasks: ['tasks', 4],
} as const satisfies Record<string, readonly [of: keyof typeof LIMITS, part: number]>;

/** All bounds of a handler. */
export type Limits = Readonly<typeof LIMITS & typeof CONSTANTS & Record<keyof typeof SHARES, number>>;

/** Where tests set any bound, unchecked, besides the option `limits`. */
const TUNING = Symbol.for('mcp-await.tuning');

/** Options of a test: `createAwaitHandler(factory, { ...tuned({ stalled: 200 }) })`. */
export const tuned = (limits: Partial<Limits>): object => ({ [TUNING]: limits });

/** @throws AwaitError `bad-option` */
export function limitsOf(options: { readonly limits?: LimitOptions } = {}): Limits {
  const { limits, [TUNING]: tuning } = options as typeof options & { [TUNING]?: Partial<Limits> };
  check(limits);
  const set = { ...LIMITS, ...CONSTANTS, ...limits, ...tuning };
  const shares = Object.entries(SHARES).map(([name, [of, part]]) => [name, Math.ceil(set[of] / part)]);
  return { ...set, ...Object.fromEntries(shares), ...tuning };
}

function check(limits: unknown): void {
  if (limits === undefined) return;
  if (!isObject(limits)) throw badOption('limits', 'must be an object such as { frames: 100 }');
  for (const [name, value] of Object.entries(limits)) {
    if (!Object.hasOwn(LIMITS, name)) {
      throw badOption(`limits.${name}`, `is no limit; there are ${Object.keys(LIMITS).join(', ')}`);
    }
    checkAtLeast(name === 'frames' ? 0 : 1, `limits.${name}`, value);
  }
}
