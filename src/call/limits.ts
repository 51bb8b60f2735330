/** Everything here is bounded (invariant 14): each bound has an option, a default and a named error. */
export interface Limits {
  /** Asks of one call, in all its turns. Default 100. */
  readonly asks: number;
  /** Turns of one call. Default 100. */
  readonly rounds: number;
  /** Bytes of one call's folded journal, as JSON; of a task's, with the asks and answers since it is one. Default 1 MiB. */
  readonly journalBytes: number;
  /** Characters of a token; longer ones are refused unread. Default 1 Mi. */
  readonly tokenBytes: number;
  /** Bytes of a request body. Default 4 MiB. */
  readonly bodyBytes: number;
  /**
   * Values in a request body: members of its objects and elements of its arrays. A tenth of them in an `initialize` or a
   * `_meta`, which schemas check. Default 100,000.
   */
  readonly bodyValues: number;
  /**
   * Bytes that the arguments of running calls take in memory, as estimated; more are refused. Default 512 MiB.
   */
  readonly argumentBytes: number;
  /** Of these, of one known caller's calls, or of those of all anonymous callers. Default 128 MiB. */
  readonly callerArgumentBytes: number;
  /**
   * Bytes of all bodies and WebSocket messages that are being received: half are all anonymous callers', and half one
   * caller's at most. Of a share that is used up, the one that has taken longest is broken off. Default 64 MiB.
   */
  readonly receivedBytes: number;
  /**
   * Bytes of all replies that wait for clients to read, in the same shares; the one that has waited longest is broken
   * off. Default 64 MiB.
   */
  readonly unreadBytes: number;
  /** Messages of one body, where a revision takes an array of them. Default 100. */
  readonly batch: number;
  /** Requests that this process serves at once, new calls and those that are continued; more are refused with 503. Default 10,000. */
  readonly calls: number;
  /** Of these, requests of one known caller, or of anonymous ones of one address. Default 2,000. */
  readonly callerCalls: number;
  /** Of these, requests of all anonymous callers together. Default 5,000. */
  readonly anonymousCalls: number;
  /** Frames kept parked in this process; the least recently used are dropped. Default 1,000. */
  readonly frames: number;
  /** Of these, frames of one caller, where callers are known. Default 200. */
  readonly callerFrames: number;
  /** Bytes of journal behind the parked frames of one caller; anonymous callers count as one. Default 64 MiB. */
  readonly callerBytes: number;
  /**
   * Characters that journals take in this process's memory, where no other store is given; a call that would be
   * suspended beyond it is refused. As many again for the events of streams, of which the oldest go. Default 256 Mi.
   */
  readonly storedBytes: number;
  /**
   * Of these, of the calls and sessions of one caller, and of its streams; anonymous callers count as one. In a shared
   * store too: of what this process wrote. Default 64 Mi.
   */
  readonly callerStoredBytes: number;
  /** How long a parked frame is kept, in milliseconds. Default ten minutes. */
  readonly frameIdle: number;
  /** Finished calls whose outcome is kept for a repeated request, in the in-memory store. Default 1,000. */
  readonly outcomes: number;
  /**
   * Sessions kept in this process, of each wire that has sessions. The least recently used idle ones make room; one
   * that is connected, or has a running or suspended call, stays, and new ones are refused with 503. Default 1,000.
   */
  readonly sessions: number;
  /** Of these, sessions of one known caller, or of anonymous ones of one address. Default 200. */
  readonly callerSessions: number;
  /** Of these, sessions of all anonymous callers together. Default 500. */
  readonly anonymousSessions: number;
  /** How long an idle session's instance is kept, in milliseconds. Default half an hour. */
  readonly sessionIdle: number;
  /** Notifications held for a parked frame, and for a session without a stream. Default 100. */
  readonly heldNotifications: number;
  /** Times a tool is run again for the same -32042 before the call ends. Default 3. */
  readonly reruns: number;
  /** How long the owner of a turn may be silent before another process takes it up, in milliseconds. Default 10 s. */
  readonly lease: number;
  /** How long a request waits for a turn that another process runs, in milliseconds. Default 30 s. */
  readonly turnWait: number;
  /** How long the process that keeps a call's frame may take to accept its next turn, in milliseconds. Default 500. */
  readonly handoffWait: number;
  /**
   * Events kept of one stream for a client that comes back; the oldest are deleted. Up to eight times as many for
   * as long as a connection in the process that appends has them before it. Default 500.
   */
  readonly streamEvents: number;
  /**
   * Streams kept of one session by each process; the oldest finished one is deleted. On 2024-11-05, where a session has
   * one stream, a session's running requests. Default 100.
   */
  readonly streams: number;
  /**
   * How long the stream of a request can be resumed after its last event, in milliseconds; in no case longer than
   * `ttl` after the request. On a stream of a session, or of a GET of `workspace-sse`: how long each message is kept for
   * a client that reconnects. Default one hour.
   */
  readonly streamLife: number;
  /** Characters of a `Last-Event-ID`; longer ones are refused unread. Default 256. */
  readonly eventIdBytes: number;
  /**
   * Longest pause between polls of a stream that another process appends to, without a relay, in milliseconds; with a
   * relay it is five times as long. Default 1 s.
   */
  readonly streamPoll: number;
  /** Time between two comments (`ping` events on `workspace-sse`) that keep an idle stream's connection open, in milliseconds. Default 15 s. */
  readonly keepAlive: number;
  /**
   * How long the reply to a request of a session is held back, in milliseconds, while the request has made no ask, no
   * step and no event: one that is over by then is one response, and nothing of it is stored. Default 50.
   */
  readonly heldReply: number;
  /** How long a client of a stream may read nothing while bytes wait for it, in milliseconds. Default 30 s. */
  readonly stalled: number;
  /** How long a call may run without an ask before it becomes a task, where it may, in milliseconds. Default 10 s. */
  readonly taskAfter: number;
  /** When a task's client should look again, in milliseconds. Default 500. */
  readonly taskPoll: number;
  /**
   * Tasks that run in this process. Above it a new task is refused, a call that would become a task late stays a call,
   * and no other process's tasks are taken over. Default 2,000.
   */
  readonly tasks: number;
  /** Of these, tasks of one known caller, or of anonymous ones of one address. Default 200. */
  readonly callerTasks: number;
  /** Of these, tasks of all anonymous callers together. Default 500. */
  readonly anonymousTasks: number;
  /** How long turns that are being run may take to end when the handler is closed, in milliseconds. Default 10 s. */
  readonly drain: number;
}

export const DEFAULT_LIMITS: Limits = {
  asks: 100,
  rounds: 100,
  journalBytes: 1_048_576,
  tokenBytes: 1_048_576,
  bodyBytes: 4_194_304,
  bodyValues: 100_000,
  argumentBytes: 536_870_912,
  callerArgumentBytes: 134_217_728,
  receivedBytes: 67_108_864,
  unreadBytes: 67_108_864,
  batch: 100,
  calls: 10_000,
  callerCalls: 2_000,
  anonymousCalls: 5_000,
  frames: 1_000,
  callerFrames: 200,
  callerBytes: 67_108_864,
  storedBytes: 268_435_456,
  callerStoredBytes: 67_108_864,
  frameIdle: 600_000,
  outcomes: 1_000,
  sessions: 1_000,
  callerSessions: 200,
  anonymousSessions: 500,
  sessionIdle: 1_800_000,
  heldNotifications: 100,
  reruns: 3,
  lease: 10_000,
  turnWait: 30_000,
  handoffWait: 500,
  streamEvents: 500,
  streams: 100,
  streamLife: 3_600_000,
  eventIdBytes: 256,
  streamPoll: 1_000,
  keepAlive: 15_000,
  heldReply: 50,
  stalled: 30_000,
  taskAfter: 10_000,
  taskPoll: 500,
  tasks: 2_000,
  callerTasks: 200,
  anonymousTasks: 500,
  drain: 10_000,
};
