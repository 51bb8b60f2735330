/**
 * The reply to a POST, held back until its calls have something to lose: an ask, a step, or an event that the client
 * could come back for; or a moment (`limits.heldReply`). Then it is a stream: its calls are in their journals, so that
 * any process can take them up. What is over before that is one response, and nothing of it is stored.
 *
 * 1. No event is told, and no step runs, before the calls can be found by whoever the client comes back to.
 * 2. A store that fails keeps the reply back; what was said goes out with the response.
 */
import { systemClock, type Timer } from '../../src/base/clock.ts';
import { AwaitError } from '../../src/base/error.ts';
import type { JsonObject } from '../../src/base/json.ts';
import type { Begun } from '../../src/call/engine.ts';
import type { Inbound, Reply, Writer } from '../../src/http/exchange.ts';
import { messageText, SSE_HEADERS } from '../../src/http/reply.ts';
import { callIdOf } from '../../src/stream/event-id.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { noteFirst, SESSION, sse } from './connection.ts';
import type { Session } from './session.ts';
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
  /** Lets others find the calls, beside their journals. @param stream its id */
  readonly remember: (stream: string, calls: readonly Begun[]) => Promise<void>;
}

export class HeldReply implements CallStream {
  readonly reply: Promise<Reply>;
  readonly held: NonNullable<CallStream['held']>;
  readonly #options: HeldOptions;
  readonly #id: string;
  readonly #calls = new Set<Begun>();
  /** What was said before there is a stream. */
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
  readonly #heard: Promise<void>;
  #onHeard = (): void => {};

  /** @throws AwaitError `limit` where the session has too many streams already */
  constructor(options: HeldOptions) {
    this.#options = options;
    const { services, session, count, own } = options;
    this.#release = own === undefined ? services.streams.reserve(session.id) : () => {};
    this.#id = own?.id ?? session.newStreamId();
    this.#left = count;
    this.reply = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#heard = new Promise((resolve) => {
      this.#onHeard = resolve;
    });
    this.held = {
      how: { ...(count === 1 && { id: callIdOf(this.#id) }), onDurable: () => this.begin() },
      add: (started) => {
        this.#calls.add(started);
        void started.outcome.then(() => this.#calls.delete(started));
      },
    };
  }

  /** Whether a client may have an id of it to come back with. */
  get begun(): boolean {
    return this.#stream?.begun === true;
  }

  /** Its requests are in work. */
  started(): void {
    const { services, own } = this.#options;
    const { heldReply } = services.settings.limits;
    if (this.#state !== 'held') return;
    // Whoever chose that nothing is held back, or may send a request again, is told what its store says.
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

  /** What came of a request; undefined where its client wants nothing of it. */
  respond(message: JsonObject | undefined): void {
    this.#left -= 1;
    if (this.#stream !== undefined) this.#append(this.#stream, message, this.#left === 0);
    else {
      if (message !== undefined) this.#said.push(message);
      if (this.#left === 0 && this.#state === 'held') this.#respondAtOnce();
    }
  }

  /**
   * Makes it a stream. Resolves once its head is on its way and, where the revision has one, the event that tells its
   * client an id; or when its client is gone.
   * @throws AwaitError `store`, `closed`: it is held back still
   */
  begin(): Promise<void> {
    if (this.#state === 'response') return Promise.resolve();
    this.#opening ??= this.#open().catch((error: unknown) => {
      if (this.#state === 'held') this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  /** Its connection ends with the first event; its client comes back for the rest. */
  disconnect(): void {
    const { services, session } = this.#options;
    const disconnect = (): void => services.streams.disconnect(this.#id, session.id);
    this.begin().then(
      // A client without an id would not come back.
      () => this.#heard.then(disconnect),
      () => {},
    );
  }

  async #open(): Promise<void> {
    const { services, session, inbound, own, remember } = this.#options;
    const calls = [...this.#calls];
    await Promise.all([...calls.map((call) => call.keep()), remember(this.#id, calls)]);
    // All of it came to its end meanwhile.
    if (this.#state !== 'held') return;
    const stream = own ?? session.newStream(this.#id);
    this.#leave('stream');
    const found = await services.streams.find(stream.id, 0, session.id).catch((error: unknown) => {
      this.#reject(error);
      throw error;
    });
    await new Promise<void>((connected) => {
      const wrap = (sink: Sink): Sink => {
        connected();
        sink.onClose(this.#onHeard);
        return noteFirst(this.#onHeard)(sink);
      };
      this.#resolve(sse(services, session, found, 'postStreams', wrap));
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

  #append(stream: SessionStream, message: JsonObject | undefined, isLast: boolean): void {
    if (message === undefined) {
      if (isLast) stream.finish();
    } else if (isLast) stream.end(message);
    else void stream.send(message);
  }

  /** Nothing is to be kept: one response, in events without ids. */
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

  /** Bounded, as what waits for a stream's store is. */
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
