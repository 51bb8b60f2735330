/**
 * The transport for a client of SDK v1, whose `Client` stays as it is.
 *
 * Owns the connection's life, and whose answer an answer of the client is; the rest is the wire's
 * (`revisions.ts`).
 *
 * `src/client/transport.ts` is a transport for SDK v1's `Client`, of which it needs only types (`authProvider` alone
 * loads the SDK). It owns the connection's life, and assigns `Client`'s answers to their asks; one of two links does
 * the rest. `session/link.ts` negotiates a draft, shows `Client` the version that it asked for, and keeps the
 * draft's name in `MCP-Protocol-Version`. `modern/link.ts` (2026-07-28) has no initialization: it answers `Client`'s
 * from `server/discover`, puts its declaration into each request, and answers methods that the revision does not
 * have (`ping`, log levels, subscriptions) itself, or maps them to the revision's own.
 *
 * Round trips (`round-trips/round-trips.ts`). A request is a `RoundTripCall` over as many exchanges as it takes;
 * calls share no state, so nothing can reach a parallel one. The revisions differ by a table of spellings
 * (`round-trips/dialect.ts`): how a retry is written, how an incomplete response is read, how a task's asks are
 * answered. An ask goes to `Client` as a request whose id is its key, renamed if another call has that key open.
 * `params` of a retry are those of the request, its progress token among them: an exchange has ended when the next
 * begins, so one token is enough. SDK v1 refuses unknown members in empty results, so `resultType` is removed.
 *
 * An answer on these wires is a result. A handler's error counts as a user who does not answer: `cancel` for an
 * elicitation, the failure of the call for any other ask, and `tasks/cancel` for a task.
 *
 * Tasks (`round-trips/task.ts`). The task is polled at the server's pace while its asks are open, so that a
 * withdrawn ask leaves the user's screen. An ask is identified by its key while the server lists it; on the drafts,
 * whose `tasks/get` lists no asks, `tasks/result` is called once no ask is open, and may return the outcome.
 * Requests about a task have the same effect however often they are sent, and the task runs on in any case: so a
 * request that fails in the network, a balancer or the store is sent again, under an id of its own
 * (`round-trips/repeat.ts`), and if that does not help the saved call stays valid. `tools/call` is sent again only
 * if the server has certainly not taken it.
 *
 * Saved calls (`round-trips/saved-call.ts`). A retry needs the request, the state and the asks: that is the record,
 * reported before the user is asked, and given back in the `_meta` of an ordinary `callTool`, since an unmodified
 * `Client` passes nothing else. It is dropped when the server has responded, not when the caller's time-out is over:
 * the state is still valid then.
 */
import type { Transport, TransportSendOptions } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type AwaitError, optionError } from '../base/values.ts';
import { Asks } from './asks.ts';
import { Endpoint, type EndpointOptions } from './endpoint.ts';
import type { ClientLink } from './link.ts';
import { asError, isAnswer, isRequest, RECONNECTION, type Reconnection, type Rpc } from './message.ts';
import { refusedAsk, withoutOddUrls } from './odd-urls.ts';
import { type ClientRevision, rowOf } from './revisions.ts';
import type { OnState } from './round-trips/round-trips.ts';
import type { CallOptions } from './session/multi-turn.ts';

/** As many as a server of this package serves (`limits.rounds`). */
const MAX_ROUNDS = 100;

/** The options of `AwaitClientTransport`. */
export interface AwaitClientOptions extends EndpointOptions {
  /**
   * A draft is asked for, and a server that does not speak it answers with another version and is served as the SDK
   * would. 2026-07-28 is not negotiated: a server that lacks it fails `connect`.
   */
  readonly revision: ClientRevision;
  /** How a stream that broke is opened again; each has the SDK's default. */
  readonly reconnectionOptions?: Partial<Reconnection> | undefined;
  /** Most rounds of asks in one call before it fails; 100. */
  readonly maxRounds?: number | undefined;
  /**
   * Whether calls of tools may become tasks, which this transport then follows until their result is there.
   *
   * 2026-07-28: yes, unless `false`; the server decides. The drafts: only if an object is given, which goes with
   * each call as its `task`, `ttl` in milliseconds.
   */
  readonly tasks?: false | { readonly ttl?: number } | undefined;
  /**
   * Told where a call stands each time that its user is asked or it becomes a task, before that happens, and
   * `undefined` once it has its response. The state is JSON; `resuming(state)` gives the params to go on with.
   */
  readonly onState?: OnState | undefined;
}

/**
 * A transport with which SDK v1's `Client` speaks 2026-07-28 and the drafts.
 *
 * @example
 * import { Client } from '@modelcontextprotocol/sdk/client/index.js';
 * import { AwaitClientTransport } from 'mcp-await/client';
 *
 * const client = new Client({ name: 'desk', version: '1.0.0' }, { capabilities: { elicitation: {} } });
 * await client.connect(new AwaitClientTransport('https://example.com/mcp', { revision: '2026-07-28' }));
 */
export class AwaitClientTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: Transport['onmessage'];
  readonly #endpoint: Endpoint;
  readonly #asks = new Asks();
  readonly #link: ClientLink;
  readonly #revision: ClientRevision;
  #started = false;

  /** Throws an AwaitError (`bad-option`) for options that make no sense. */
  constructor(url: URL | string, options: AwaitClientOptions) {
    const { revision, maxRounds, tasks, onState } = checked(options);
    this.#endpoint = new Endpoint(new URL(url), options);
    this.#revision = revision;
    this.#link = rowOf(revision).open({
      endpoint: this.#endpoint,
      asks: this.#asks,
      reconnection: { ...RECONNECTION, ...options.reconnectionOptions },
      deliver: (message: Rpc) => this.#deliver(message),
      report: (error: Error) => this.onerror?.(error),
      maxRounds,
      onState,
      tasks,
    });
  }

  /** Kept by a client that means to go on with the session, in another process. */
  get sessionId(): string | undefined {
    return this.#endpoint.sessionId;
  }

  /** The version on the wire, which is the draft's where the server agreed to it. */
  get protocolVersion(): string | undefined {
    return this.#endpoint.protocolVersion;
  }

  setProtocolVersion(version: string): void {
    this.#link.setProtocolVersion(version);
  }

  async start(): Promise<void> {
    if (this.#started) {
      throw new Error(
        'AwaitClientTransport already started! Note that Client.connect() calls start() itself.',
      );
    }
    this.#started = true;
  }

  /** Rejects with an EndpointError, whose `code` is the HTTP status, where the server refuses the message. */
  async send(message: Rpc, options: TransportSendOptions = {}): Promise<void> {
    try {
      if (isAnswer(message)) {
        const ask = message.id === undefined ? undefined : this.#asks.take(message.id);
        if (ask === undefined) await this.#link.answer(message);
        else await ask.asker.answer(ask.id, message);
      } else if (isRequest(message)) await this.#link.request(message, options);
      else await this.#link.notify(message);
    } catch (thrown) {
      this.onerror?.(asError(thrown));
      throw thrown;
    }
  }

  /** Leaves the session to the server: `terminateSession` ends it. */
  async close(): Promise<void> {
    this.#endpoint.close();
    this.#link.close();
    this.onclose?.();
  }

  async terminateSession(): Promise<void> {
    try {
      await this.#endpoint.delete();
    } catch (thrown) {
      this.onerror?.(asError(thrown));
      throw thrown;
    }
  }

  /** With the code that the user's browser came back with, after an `UnauthorizedError`. */
  finishAuth(authorizationCode: string): Promise<void> {
    return this.#endpoint.finishAuth(authorizationCode);
  }

  /** Goes on with a stream that another client of this session lost; 2026-07-28 has none. */
  async resumeStream(
    lastEventId: string,
    options: Pick<CallOptions, 'onresumptiontoken'> = {},
  ): Promise<void> {
    if (this.#link.resumeStream !== undefined) return this.#link.resumeStream(lastEventId, options);
    const message = `${this.#revision} has no streams to resume; see the option \`onState\`.`;
    throw optionError(message);
  }

  #deliver(message: Rpc): void {
    try {
      const refused = refusedAsk(message);
      if (refused === undefined) this.onmessage?.(withoutOddUrls(message));
      else void this.send(refused).catch(() => {});
    } catch (thrown) {
      this.onerror?.(asError(thrown));
    }
  }
}

function checked(options: AwaitClientOptions): AwaitClientOptions & { readonly maxRounds: number } {
  const { revision, maxRounds = MAX_ROUNDS, tasks, sessionId } = options;
  const senseless = (why: string): AwaitError => optionError(why);
  const { hasSessions } = rowOf(revision);
  if (!Number.isInteger(maxRounds) || maxRounds < 1) {
    throw senseless(`maxRounds must be a whole number of at least 1, not ${maxRounds}.`);
  }
  if (tasks !== undefined && tasks !== false && (typeof tasks !== 'object' || tasks === null)) {
    throw senseless('tasks must be false, or an object that may have a `ttl` in milliseconds.');
  }
  if (!hasSessions && sessionId !== undefined) {
    throw senseless(`${revision} has no sessions: leave out \`sessionId\`, and see \`onState\`.`);
  }
  return { ...options, maxRounds };
}
