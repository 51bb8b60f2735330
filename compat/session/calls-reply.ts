/**
 * The reply to the requests of one POST (several only on 2025-03-26): the replies of their calls, each read from its own
 * log. It is held back until one of the calls becomes durable: at an ask, a step, an event that the client could resume
 * from, or after `limits.heldReply`. Calls that end before that are one response, and nothing of them is stored.
 * 1. No event goes out, and no step runs, before the calls can be found by the process to which the client returns.
 * 2. While the store fails, the reply stays held.
 * 3. An event's id says how far its client is in each call. Responses of before the stream are entries of a call that
 *    still runs, since a call that was over by then has no log.
 */
import { AwaitError, deferred, type JsonObject, memoryOf } from '../../src/base/values.ts';
import type { Begun } from '../../src/call/engine.ts';
import type { Outcome } from '../../src/call/ports.ts';
import type { Waiting } from '../../src/doors/http/backlog.ts';
import type { Reply } from '../../src/doors/http/exchange.ts';
import type { CallConnection } from '../../src/stream/call-connections.ts';
import {
  type BatchPlaces,
  batchEventId,
  callIdOf,
  callOfBatch,
  parseEventId,
} from '../../src/stream/event-id.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { quotaKeyOf } from '../quota-key.ts';
import {
  atOnce,
  callAt,
  connect,
  eventsReply,
  finish,
  follow,
  hasAll,
  LIVE_REPLY,
  logOf,
  messageEvent,
  type ReplyDialect,
  type ReplyOf,
  replyTo,
} from './call-reply.ts';
import type { Exchange } from './exchange.ts';
import { Held } from './held.ts';
import { messageOf, type RpcRequest } from './start.ts';
import type { OneCallStream } from './stream.ts';

/** Memory of responses that one of the calls may take along into its log, in bytes: until then nothing counts them. */
const MOST_TAKEN = 1_048_576;
const TOO_MUCH = 'the messages of a reply that is held back take more than limits.unreadBytes allows';
const TOO_LARGE = `a call asks or runs a step while other responses to its array take more than ${MOST_TAKEN} bytes`;

interface Member {
  readonly request: RpcRequest;
  readonly callId: string;
  readonly stream: OneCallStream;
  /** Until it is over. */
  call: Begun | undefined;
  isOver: boolean;
}

export class CallsReply {
  readonly #reply = deferred<Reply>();
  readonly reply = this.#reply.promise;
  readonly #exchange: Exchange;
  readonly #dialect: ReplyDialect;
  readonly #stream: string;
  /** Whether it is a stream from the first: with `heldReply: 0`, or for a request that may come again. */
  readonly #isStream: boolean;
  readonly #members: readonly Member[];
  readonly #release: () => void;
  /** Messages of calls of which nothing is written. */
  #said: { readonly message: JsonObject; readonly of?: Member }[] = [];
  /** Their memory, in bytes. */
  #bytes = 0;
  /** Counts them among all bytes that wait for clients. */
  #waiting: Waiting | undefined;
  readonly #held: Held;
  /** A call that asks, or runs a step: it goes on, and takes along what the others said. */
  #speaker: Member | undefined;
  /** All of its requests are begun: those that are not would be left out as it becomes durable. */
  readonly #begun = deferred();

  /**
   * @param stream the id under which a request was noted that may come again
   * @throws AwaitError `limit` where the session has too many streams already
   */
  constructor(
    exchange: Exchange,
    requests: readonly RpcRequest[],
    stream: string | undefined,
    dialect = LIVE_REPLY,
  ) {
    const { services, session } = exchange;
    this.#exchange = exchange;
    this.#held = new Held(services, () => this.#open());
    this.#dialect = dialect;
    this.#stream = stream ?? session.newStreamId();
    this.#isStream = stream !== undefined || services.settings.limits.heldReply === 0;
    this.#release = services.streams.reserve(session.id);
    const isOne = requests.length === 1;
    this.#members = requests.map((request, nth) =>
      this.#memberOf(request, isOne ? callIdOf(this.#stream) : callOfBatch(this.#stream, nth)),
    );
  }

  #memberOf(request: RpcRequest, callId: string): Member {
    const { session, services } = this.#exchange;
    const direct = (message: JsonObject): void => {
      if (this.#held.isHeld) this.#hold(message);
      else services.replies.get(callId)?.pass(messageEvent(message));
    };
    const keepNow = async (): Promise<void> => {
      await this.#begun.promise;
      this.#speaker = member;
      return this.#held.keep();
    };
    const onDurable = this.#isStream ? {} : { onDurable: keepNow };
    const member: Member = {
      request,
      callId,
      call: undefined,
      isOver: false,
      stream: {
        log: {
          how: { ...onDurable, session: session.name, callId },
          add: (started) => {
            member.call = started;
          },
          direct,
        },
        send: (message) => member.call?.say(message),
      },
    };
    return member;
  }

  #watched(): Waiting {
    const { services, inbound } = this.#exchange;
    const held = (): number => this.#bytes;
    const outlet = {
      get unsent() {
        return held();
      },
      isQueued: true,
      destroy: () => void this.#refuse(TOO_MUCH),
    };
    return services.traffic.unread.watch(outlet, quotaKeyOf(services, inbound));
  }

  /** The stream of a request. */
  of(request: Pick<RpcRequest, 'id'>): OneCallStream {
    return this.#member(request).stream;
  }

  #member({ id }: Pick<RpcRequest, 'id'>): Member {
    const member = this.#members.find(({ request }) => request.id === id);
    if (member === undefined) throw new TypeError('the request is not of this POST');
    return member;
  }

  /** Its requests run. */
  started(): void {
    this.#begun.resolve();
    this.#held.begin(this.#isStream, this.#reply.reject);
  }

  /** Its requests could not be started. */
  abandon(): void {
    this.#leave();
    this.#release();
  }

  /** Sends the response to a request, unless it is in its call's log; a cancelled one gets none. */
  respond(request: Pick<RpcRequest, 'id'>, outcome: Outcome): void {
    const member = this.#member(request);
    member.isOver = true;
    const isLast = this.#members.every(({ isOver }) => isOver);
    if (isLast) this.#release();
    const end = (): void => {
      if (this.#held.isHeld) {
        const message = messageOf(request, outcome);
        if (message !== undefined) this.#hold(message, member);
        if (isLast) this.#respondAtOnce();
      } else if (member.call !== undefined) finish(this.#exchange, this.#replyOf(member), outcome);
      // Its outcome is memory for as long as other calls of the POST last.
      if (!this.#held.isHeld) member.call = undefined;
    };
    // A turn that ends with asks has made the call durable.
    if (this.#held.isHeld && (this.#isStream || outcome.kind === 'suspended'))
      this.#held.keep().then(end, this.#reply.reject);
    else end();
  }

  /** Its connection ends with the first event; its client comes back for the rest. */
  disconnect(): void {
    const { replies } = this.#exchange.services;
    this.#held.keep().then(
      () => {
        for (const { callId } of this.#members) replies.get(callId)?.disconnect('closed');
      },
      () => {},
    );
  }

  #respondAtOnce(): void {
    const { services, session, inbound } = this.#exchange;
    this.#leave();
    const said = this.#said.map(({ message }) => message);
    this.#reply.resolve(atOnce(services, session, inbound, said));
  }

  /** @param of the call that it is the response to */
  #hold(message: JsonObject, of?: Member): void {
    this.#said.push({ message, ...(of && { of }) });
    // The only response goes out now.
    if (of !== undefined && !this.#isSeveral) return;
    this.#bytes += memoryOf(message);
    this.#waiting ??= this.#watched();
    this.#waiting.note();
  }

  /** @param reason why its responses cannot wait */
  #refuse(reason: string): AwaitError {
    this.#said = [];
    this.#leave();
    this.#release();
    for (const { call } of this.#members) call?.cancel(reason);
    const error = new AwaitError('limit', `${reason}; send such requests one by one`);
    this.#reply.reject(error);
    return error;
  }

  /** Whether it has responses, and each other call may be about to end: a log takes nothing then. */
  get #mustWait(): boolean {
    return this.#isSeveral && this.#said.length > 0 && this.#speaker === undefined;
  }

  get #isTooLarge(): boolean {
    return this.#isSeveral && this.#speaker !== undefined && this.#bytes > MOST_TAKEN;
  }

  get #isSeveral(): boolean {
    return this.#members.length > 1;
  }

  /** Makes the reply a stream. Resolves once its head and the events so far are sent, or when its client disconnects. */
  async #open(): Promise<void> {
    const { services, session, inbound } = this.#exchange;
    const isOpen = ({ isOver }: Member): boolean => this.#isStream || !isOver;
    // A request that creates a task is no call, and has its response soon.
    if (this.#members.some((member) => isOpen(member) && member.call === undefined)) return;
    if (this.#mustWait) return;
    if (this.#isTooLarge) throw this.#refuse(TOO_LARGE);
    const opened = this.#members.flatMap((member, nth) => {
      const { call } = member;
      if (call === undefined || !isOpen(member)) return [];
      return [{ member, nth, connection: connect(this.#exchange, this.#replyOf(member)) }];
    });
    const giveUp = (): void => {
      for (const { connection } of opened) connection.end('closed');
    };
    const keeping = opened.map(async (one) => ({ ...one, isKept: await one.member.call?.keep() }));
    const tried = await Promise.all(keeping).catch((error: unknown) => {
      giveUp();
      throw error;
    });
    const running = tried.filter(({ isKept }) => isKept);
    // Where all have ended meanwhile, the last one's response is about to come.
    if (!this.#held.isHeld || this.#mustWait || this.#isTooLarge || running.length === 0) {
      giveUp();
      if (this.#held.isHeld && this.#isTooLarge) throw this.#refuse(TOO_LARGE);
      return;
    }
    for (const { isKept, connection } of tried) if (!isKept) connection.end('closed');
    this.#leave();
    // Of a call that ended meanwhile the response is in its own log.
    const inLogs = new Set(running.map(({ member }) => member));
    const said = this.#said.splice(0).filter(({ of }) => of === undefined || !inLogs.has(of));
    for (const { message } of said) (this.#speaker ?? running[0]?.member)?.call?.say(message);
    await new Promise<void>((connected) => {
      const attach = (sink: Sink): void => {
        const none = this.#members.map(() => ({ sequence: 0 }));
        merge(this.#stream, none, running, this.#dialect.wrap(sink));
        connected();
      };
      this.#reply.resolve(eventsReply(services, session, 'postStreams', attach));
      const onGone = (): void => {
        for (const { connection } of running) connection.unattached();
        connected();
      };
      inbound.signal.addEventListener('abort', onGone, { once: true });
    });
  }

  #replyOf({ request, callId }: Member): ReplyOf {
    return replyTo(request, callId, this.#dialect);
  }

  /** It is held back no more. */
  #leave(): void {
    this.#held.release();
    this.#waiting?.end();
  }
}

/** A connection that reads a call of the POST, and the call's position among its requests. */
interface CallReading {
  readonly connection: CallConnection;
  readonly nth: number;
}

/**
 * Attaches the connections of calls to one sink, which ends with the last of them.
 * @param before how far the client is in each call
 */
function merge(stream: string, before: BatchPlaces, readings: readonly CallReading[], sink: Sink): void {
  const [only] = readings;
  if (before.length === 1 && only !== undefined) {
    only.connection.attach(sink);
    return;
  }
  const places = [...before];
  let left = readings.length;
  let isOver = false;
  const end: Sink['end'] = (why) => {
    left -= 1;
    if (isOver || (why === 'finished' && left > 0)) return;
    isOver = true;
    sink.end(why);
  };
  const send =
    (nth: number): Sink['send'] =>
    (event, id) => {
      const place = parseEventId(id ?? '', Infinity);
      if (place !== undefined) places[nth] = place;
      return sink.send(event, place && batchEventId(stream, places));
    };
  for (const { connection, nth } of readings) connection.attach({ ...sink, send: send(nth), end });
  if (left === 0 && !isOver) sink.end('finished');
}

/**
 * A client that came back for the rest of a batch.
 * @returns undefined if it is of no batch of this session
 * @throws AwaitError `store`
 */
export async function resumedBatch(
  exchange: Exchange,
  stream: string,
  places: BatchPlaces,
): Promise<Reply | undefined> {
  const read = (nth: number): ReturnType<typeof callAt> =>
    callAt(exchange, callOfBatch(stream, nth), places[nth]?.sequence ?? 0);
  // A batch that is none of this session costs one read.
  const first = places.findIndex(({ sequence }) => sequence > 0);
  const firstLog = await read(first);
  if (firstLog === undefined) return undefined;
  const found = await Promise.all(
    places.map(async (place, nth) => {
      const log = nth === first ? firstLog : await read(nth);
      // One that was over before there was a stream has no log.
      return { nth, place, log, isKnown: log !== undefined || place.sequence === 0 };
    }),
  );
  if (found.some(({ isKnown }) => !isKnown) || found.every(({ log }) => log === undefined)) return undefined;
  const { services, session } = exchange;
  return eventsReply(services, session, 'resumedStreams', (sink) => {
    const rest = found.flatMap(({ nth, place, log }) => {
      return log === undefined || hasAll(log, place) ? [] : [{ nth, place, reply: logOf(log.call) }];
    });
    const readings = rest.map((one) => ({ ...one, connection: connect(exchange, one.reply, one.place) }));
    merge(stream, places, readings, sink);
    for (const { reply, connection } of readings) void follow(exchange, reply, connection);
  });
}
