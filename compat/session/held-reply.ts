/**
 * The reply to a POST, held back until one of its calls becomes durable: at an ask, a step, an event that the client
 * could resume from, or after `limits.heldReply`. Then it becomes a stream, whose calls are in their journals, so that
 * any process can take them over. Calls that end before that are one response, and nothing of them is stored.
 * 1. No event goes out, and no step runs, before the calls can be found by the process to which the client returns.
 * 2. While the store fails, the reply stays held; its notifications go out with the response.
 */
import { systemClock, type Timer } from '../../src/base/clock.ts';
import { AwaitError } from '../../src/base/error.ts';
import type { JsonObject } from '../../src/base/json.ts';
import type { Begun } from '../../src/call/engine.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { isKept } from '../../src/call/run/wire-error.ts';
import type { Inbound, Reply, Writer } from '../../src/http/exchange.ts';
import { messageText, SSE_HEADERS } from '../../src/http/reply.ts';
import { streamIdOf } from '../../src/stream/event-id.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { noteFirst, SESSION, sse } from './connection.ts';
import { rememberPost } from './post-calls.ts';
import type { Session } from './session.ts';
import { messageOf, type RpcRequest } from './start.ts';
import type { CallStream, SessionStream } from './stream.ts';

/** How long a store that failed is left alone, in milliseconds. */
const AGAIN = 1_000;

export interface HeldOptions {
  readonly services: Services;
  readonly session: Session;
  readonly inbound: Inbound;
  /** Its requests. */
  readonly count: number;
  /** The stream that it is from the first, where a request may come again. */
  readonly own?: SessionStream | undefined;
  /** Changes what its connection gets of the stream's events. */
  readonly wrap?: (sink: Sink) => Sink;
}

export class HeldReply implements CallStream {
  readonly reply: Promise<Reply>;
  readonly held: NonNullable<CallStream['held']>;
  readonly #options: HeldOptions;
  readonly #calls = new Set<Begun>();
  /** Notifications from before there is a stream. */
  #said: JsonObject[] = [];
  /** Requests without a response. */
  #left: number;
  #stream: SessionStream | undefined;
  #opening: Promise<void> | undefined;
  /** `stream` once it is decided that it is one, which has its connection soon. */
  #state: 'held' | 'stream' | 'response' = 'held';
  #timer: Timer | undefined;
  readonly #release: () => void;
  #resolve: (reply: Reply) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #isHeard = false;
  #onHeard = (): void => {};

  /** @throws AwaitError `limit` where the session has too many streams already */
  constructor(options: HeldOptions) {
    this.#options = options;
    const { services, session, count, own } = options;
    this.#release = own === undefined ? services.streams.reserve(session.id) : () => {};
    this.#left = count;
    this.reply = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.held = {
      how: { onDurable: () => this.begin() },
      add: (started) => {
        this.#calls.add(started);
        // Of a single one the stream's id follows, ended or not.
        if (count > 1) void started.outcome.then(() => this.#calls.delete(started));
      },
    };
  }

  /** Whether a client may have an id of it to come back with. */
  get begun(): boolean {
    return this.#stream?.begun === true;
  }

  /** Its requests run. */
  started(): void {
    const { services, own } = this.#options;
    const { heldReply } = services.settings.limits;
    if (this.#state !== 'held') return;
    // With `heldReply: 0`, or for a request that may be sent again, a failure of the store is the request's error.
    if (own !== undefined || heldReply === 0) this.begin().catch(this.#reject);
    else this.#arm(heldReply);
  }

  /** Its requests could not be started. */
  abandon(): void {
    if (this.#state === 'held') this.#leave('response');
  }

  /** An event. */
  send(message: JsonObject): void {
    if (this.#stream !== undefined) {
      void this.#stream.send(message);
      return;
    }
    if (this.#state !== 'response' && this.#say(message)) this.begin().catch(() => {});
  }

  /** Adds the response to a request; a cancelled one gets none. */
  respond(request: RpcRequest, outcome: Outcome): void {
    const message = messageOf(request, outcome);
    this.#left -= 1;
    if (this.#stream !== undefined) this.#append(this.#stream, message, this.#left === 0, isKept(outcome));
    else {
      if (message !== undefined) this.#said.push(message);
      if (this.#left === 0 && this.#state === 'held') this.#respondAtOnce();
    }
  }

  /**
   * Makes the reply a stream. Resolves once its head and, on revisions that have one, the event with the first id are
   * sent; or when its client disconnects.
   * @throws AwaitError `store`, `closed`: the reply is still held back
   */
  begin(): Promise<void> {
    if (this.#state === 'response') return Promise.resolve();
    this.#opening ??= this.#open().catch((error: unknown) => {
      if (this.#state === 'held') this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  /**
   * Its stream, for more than messages.
   * @throws AwaitError as `begin`
   */
  async opened(): Promise<SessionStream> {
    await this.begin();
    if (this.#stream === undefined) throw new AwaitError('closed', 'the reply was sent without a stream');
    return this.#stream;
  }

  /** This process leaves, and gave its calls up: its client comes back to another one for the rest. */
  handOver(): void {
    const { services, session } = this.#options;
    if (services.engine.isLeaving && this.#stream !== undefined)
      services.streams.handOver(this.#stream.id, session.id);
  }

  /** Its connection ends with the first event; its client comes back for the rest. */
  disconnect(): void {
    const { services, session } = this.#options;
    const disconnect = (): void => {
      if (this.#stream !== undefined) services.streams.disconnect(this.#stream.id, session.id);
    };
    this.begin().then(
      () => {
        // A client without an id would not come back.
        if (this.#isHeard) disconnect();
        else this.#onHeard = () => queueMicrotask(disconnect);
      },
      () => {},
    );
  }

  async #open(): Promise<void> {
    const { services, session, inbound, own, wrap = (sink: Sink) => sink } = this.#options;
    const calls = [...this.#calls];
    const only = this.#options.count === 1 ? calls[0] : undefined;
    const id = own?.id ?? (only === undefined ? session.newStreamId() : streamIdOf(only.callId));
    await Promise.all([...calls.map((call) => call.keep()), rememberPost(services, session, id, calls)]);
    // All requests ended meanwhile.
    if (this.#state !== 'held') return;
    const stream = own ?? session.newStream(id);
    if (only === undefined || own !== undefined) stream.calls = calls.map(({ callId }) => callId);
    this.#leave('stream');
    const found = await services.streams.find(stream.id, 0, session.id).catch((error: unknown) => {
      this.#reject(error);
      throw error;
    });
    await new Promise<void>((connected) => {
      const connect = (sink: Sink): Sink => {
        connected();
        const heard = (): void => {
          this.#isHeard = true;
          this.#onHeard();
        };
        return noteFirst(heard)(wrap(sink));
      };
      this.#resolve(sse(services, session, found, 'postStreams', connect));
      if (inbound.signal.aborted) connected();
      else inbound.signal.addEventListener('abort', () => connected(), { once: true });
    });
    this.#stream = stream;
    const primed = session.can('primes') ? stream.prime() : undefined;
    const last = this.#left === 0 ? this.#said.at(-1) : undefined;
    for (const message of this.#said) this.#append(stream, message, message === last);
    if (this.#left === 0 && last === undefined) stream.finish();
    this.#said = [];
    if ((await primed) === false) throw new AwaitError('store', 'a stream could not be begun');
  }

  /** It is held back no more. */
  #leave(state: 'stream' | 'response'): void {
    this.#state = state;
    this.#timer?.cancel();
    this.#release();
  }

  #append(stream: SessionStream, message: JsonObject | undefined, isLast: boolean, isDue = false): void {
    if (message === undefined) {
      if (isLast) stream.finish();
    } else if (isLast) stream.end(message, isDue);
    else void stream.send(message);
  }

  /** Nothing is stored: one response, in events without ids. */
  #respondAtOnce(): void {
    const { services, session, inbound } = this.#options;
    this.#leave('response');
    services.counters.postStreams += 1;
    const text = this.#said
      .map((message) => sseEvent({ event: 'message', data: messageText(message) }))
      .join('');
    this.#said = [];
    // A pipe reads events where it is given a stream alone.
    const written = (writer: Writer): void => {
      writer.write(text);
      writer.end();
    };
    const body = inbound.piped ? written : text;
    this.#resolve({ status: 200, headers: { ...SSE_HEADERS, [SESSION]: session.id }, body });
  }

  /** Adds a notification, bounded like events that wait for a stream's store. */
  #say(message: JsonObject): boolean {
    const { settings } = this.#options.services;
    if (this.#said.length < settings.limits.streamEvents) return this.#said.push(message) > 0;
    settings.logger.warn('a held reply has more notifications than limits.heldNotifications');
    return false;
  }

  #arm(wait: number): void {
    const { logger } = this.#options.services.settings;
    this.#timer = systemClock.after(wait, () => {
      this.begin().catch((error: unknown) => {
        logger.warn('a call could not be stored yet; its reply is held back', {
          error: AwaitError.from(error).message,
        });
        if (this.#state === 'held') this.#arm(AGAIN);
      });
    });
    this.#timer.unref();
  }
}
