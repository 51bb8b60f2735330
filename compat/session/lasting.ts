/**
 * A stream that lasts longer than its calls (HTTP+SSE, a GET of a workspace): its own events, and those of its calls.
 * 1. A call that asks, has a step or lasts is named in the stream by one entry, and read from its own log. Until then
 *    its reply is held back as on 2025; one that ends before is one event of the stream, and nothing else of it is stored.
 * 2. The id of an event says how far its client is in the stream, and in each call that is not over. So a client that
 *    comes back says which calls to read on, and the server keeps no record of what a client has.
 * 3. The process that has the connection follows the calls of others, and takes them over.
 */
import { deferred, type JsonObject } from '../../src/base/values.ts';
import { type Begun, newCallId } from '../../src/call/engine.ts';
import type { CallRecord } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import {
  type EventPlace,
  type LastingPlace,
  lastingEventId,
  MOST_NAMED,
  parseEventId,
} from '../../src/stream/event-id.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import type { Sink, TailEnd } from '../../src/stream/tail.ts';
import {
  callAt,
  connect,
  expiredEvent,
  type FoundCall,
  finish,
  follow,
  hasAll,
  logOf,
  type ReplyDialect,
  type ReplyExchange,
  type ReplyOf,
  replyTo,
} from './call-reply.ts';
import { Held } from './held.ts';
import { messageOf, type RpcRequest } from './start.ts';
import type { OneCallStream, SessionStream } from './stream.ts';

/** The stream to which replies go. */
type LastingStream = Pick<SessionStream, 'event' | 'refer'>;

/** A call whose reply goes to a lasting stream. */
export class LastingCall {
  /** The stream for its notifications and asks. */
  readonly stream: OneCallStream;
  readonly #exchange: ReplyExchange;
  readonly #reply: ReplyOf;
  readonly #to: LastingStream;
  #call: Begun | undefined;
  readonly #held: Held;
  #isNamed = false;
  /** Its response is on its way into the stream. */
  #told: Promise<unknown> | undefined;
  readonly #begun = deferred();

  constructor(exchange: ReplyExchange, request: RpcRequest, dialect: ReplyDialect, to: LastingStream) {
    const { services, session } = exchange;
    const callId = newCallId(services.now() + services.settings.ttl);
    this.#exchange = exchange;
    this.#held = new Held(services, () => this.#enter());
    this.#reply = replyTo(request, callId, dialect);
    this.#to = to;
    this.stream = {
      log: {
        how: { onDurable: () => this.#held.keep(), session: session.name, callId },
        add: (call) => {
          this.#call = call;
        },
        direct: (message) => this.#direct(message),
      },
      send: (message) => (this.#call === undefined ? this.#direct(message) : this.#call.say(message)),
    };
  }

  /**
   * Resolves once other processes can find the call, or its response is in the stream.
   * @param ended its outcome
   */
  begun(ended: Promise<Outcome>): Promise<void> {
    void ended.then((outcome) => this.#held.settled().then(() => this.#end(outcome)));
    this.#held.arm();
    return this.#begun.promise;
  }

  /** Names the call in the stream. @throws AwaitError `store`, `closed` */
  async #enter(): Promise<void> {
    // A request about a task is no call, and one that has ended is in the stream soon.
    if (this.#call === undefined) {
      await this.#told;
      this.#release();
      return;
    }
    const connection = connect(this.#exchange, this.#reply);
    try {
      // One that ended meanwhile is an event of the stream, and in no log.
      if (!(await this.#call.keep())) return;
      await this.#to.refer(this.#reply.callId, this.#reply.call.requestId);
    } finally {
      // Its client is elsewhere, or reads it from the log.
      connection.unattached();
    }
    this.#isNamed = true;
    this.#release();
  }

  #direct(message: JsonObject): void {
    const { event } = this.#reply.dialect;
    if (this.#isNamed) this.#exchange.services.replies.get(this.#reply.callId)?.pass(event(message));
    else void this.#to.event(event(message));
  }

  /** Once the call is not on its way into the stream. Nothing here keeps its outcome while that waits for the store. */
  #end(outcome: Outcome): void {
    if (this.#isNamed) {
      finish(this.#exchange, this.#reply, outcome);
      return;
    }
    this.#call = undefined;
    const message = messageOf({ id: this.#reply.call.requestId }, outcome);
    this.#told = Promise.resolve(message && this.#to.event(this.#reply.dialect.event(message, true)));
    void this.#told.then(() => this.#release());
  }

  #release(): void {
    this.#held.release();
    this.#begun.resolve();
  }
}

/** Where a connection of such a stream begins. */
export interface LastingStart {
  readonly dialect: ReplyDialect;
  readonly had: LastingPlace;
  /** Those that `had` names. */
  readonly calls: readonly FoundCall[];
  /** Others that it names: they have expired, or are none of its client's. Their requests, where the stream names them. */
  readonly lost: readonly { readonly callId: string; readonly requestId?: string | number }[];
}

/**
 * The calls that a client names. Those that cannot be read keep it from no other.
 * @throws AwaitError `bad-token` for a stream that has expired; `store`
 */
export async function namedCalls(
  exchange: ReplyExchange,
  { calls }: LastingPlace,
  stream: { readonly id: string; readonly scope: string },
): Promise<Pick<LastingStart, 'calls' | 'lost'>> {
  const read = await Promise.all(
    [...calls].map(async ([callId, { sequence }]) => ({
      callId,
      found: await callAt(exchange, callId, sequence),
    })),
  );
  const there = read.flatMap(({ found }) => found ?? []);
  const lost = read.filter(({ found }) => found === undefined);
  if (lost.length === 0) return { calls: there, lost };
  const { services, session } = exchange;
  const known = await services.streams.events(stream.id, stream.scope, session.principal, () => {});
  return {
    calls: there,
    lost: lost.map(({ callId }) => known?.calls.find((call) => call.callId === callId) ?? { callId }),
  };
}

/** A connection of a stream, which gets the events of the stream's calls too. */
export function withCalls(exchange: ReplyExchange, start: LastingStart, sink: Sink): Sink {
  return new LastingConnection(exchange, start, sink).sink;
}

type CallPlace = Pick<EventPlace, 'sequence' | 'nth'>;

const NOTHING: CallPlace = { sequence: 0 };

class LastingConnection {
  readonly sink: Sink;
  readonly #exchange: ReplyExchange;
  readonly #dialect: ReplyDialect;
  readonly #prefix: string;
  readonly #sink: Sink;
  #sequence: number;
  /** The calls that are not over, and how far its client is in each. */
  readonly #open: Map<string, CallPlace>;
  readonly #onReady = new Map<string, () => void>();
  readonly #onClose = new Map<string, () => void>();
  #isOver = false;

  constructor(exchange: ReplyExchange, { dialect, had, calls, lost }: LastingStart, sink: Sink) {
    this.#exchange = exchange;
    this.#dialect = dialect;
    this.#prefix = had.prefix;
    this.#sequence = had.sequence;
    this.#open = new Map(had.calls);
    this.#sink = sink;
    this.sink = {
      ...sink,
      send: (event, id) => {
        if (id !== undefined) this.#sequence = Number(id.slice(id.lastIndexOf('_') + 1));
        return this.#send(event, id !== undefined);
      },
      call: ({ callId, requestId }, at) => {
        this.#sequence = at;
        this.#open.set(callId, NOTHING);
        void this.#begin(callId, requestId);
      },
      end: (why) => this.#end(why),
    };
    sink.onReady(() => {
      for (const ready of [...this.#onReady.values()]) ready();
    });
    sink.onClose(() => {
      this.#isOver = true;
      for (const close of [...this.#onClose.values()]) close();
    });
    for (const { callId, requestId } of lost) {
      this.#open.delete(callId);
      if (requestId !== undefined) this.#expired(callId, requestId);
    }
    for (const found of calls) {
      const place = had.calls.get(found.call.id) ?? NOTHING;
      if (hasAll(found, place)) this.#open.delete(found.call.id);
      else this.#follow(found.call, place);
    }
  }

  /** @param isKept whether its client may come back with it */
  #send(event: StreamEvent, isKept: boolean): boolean {
    const isNamed = isKept && this.#open.size <= MOST_NAMED;
    const place = { prefix: this.#prefix, sequence: this.#sequence, calls: this.#open };
    return this.#sink.send(event, isNamed ? lastingEventId(place) : undefined);
  }

  /** A call that the stream names. */
  async #begin(callId: string, requestId: string | number): Promise<void> {
    const { services } = this.#exchange;
    const begun = services.replies.get(callId);
    // The call was started here, and is being named in the stream.
    if (begun?.isWaiting) {
      begun.attach(this.#sinkOf(callId));
      return;
    }
    try {
      const found = await callAt(this.#exchange, callId, 0);
      if (this.#isOver) return;
      if (found === undefined) this.#expired(callId, requestId);
      else this.#follow(found.call, NOTHING);
    } catch (error) {
      services.settings.logger.warn('a call of a stream cannot be read', { error });
      this.#end('failed');
    }
  }

  #follow(call: CallRecord, place: CallPlace): void {
    const reply = logOf(call, this.#dialect);
    const connection = connect(this.#exchange, reply, place);
    connection.attach(this.#sinkOf(call.id));
    void follow(this.#exchange, reply, connection);
  }

  /** The connection, as one call has it. */
  #sinkOf(callId: string): Sink {
    return {
      send: (event, id) => {
        const place = parseEventId(id ?? '', Infinity);
        if (place !== undefined) this.#open.set(callId, place);
        return this.#send(event, place !== undefined);
      },
      onReady: (fn) => void this.#onReady.set(callId, fn),
      onClose: (fn) => void this.#onClose.set(callId, fn),
      end: (why) => {
        this.#onReady.delete(callId);
        this.#onClose.delete(callId);
        if (why === 'finished') this.#open.delete(callId);
        else this.#end(why);
      },
    };
  }

  /** Its log is gone, and its response with it. */
  #expired(callId: string, requestId: string | number): void {
    this.#open.delete(callId);
    if (!this.#isOver) this.#send(expiredEvent(this.#dialect, requestId), true);
  }

  #end(why: TailEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const close of [...this.#onClose.values()]) close();
    this.#sink.end(why);
  }
}
