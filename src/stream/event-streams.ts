/**
 * The event streams of one process: its appenders, the connections that follow here, and how they wake one another and
 * other processes.
 * 1. An event is in the store before a connection gets it.
 * 2. Events appended after a connection's claim go to that connection alone: claims and events are entries of one log.
 *    Within one process the newer connection simply ends the older.
 * 3. An id is looked up under its scope, so no event of another session or caller can be found.
 * 4. The relay only wakes; a lost message costs the time until the next poll.
 *
 * A stream of a session (`src/stream`) is a log like a call's: entry _n_ under the stream's name, inserted if
 * absent. Everything that happens to it is an entry (an event, its end, another process's connection), so all
 * processes see one order. An event costs one insert and is written before a connection gets it; the last event
 * includes the end.
 *
 * A connection of another process writes a `claim`: later events go to that process alone. The appender loses one
 * position to it, and reads there which process to wake. So "one message, one connection" needs no lease and no
 * extra round trip; within a process the newer connection just ends the older. Every entry names the appender's and
 * the connection's process, so the last one says which process to wake over the relay. Relay messages only mean
 * "read", so they need no seal, and a lost one costs the time to the next poll.
 *
 * An event appended in its connection's process goes there directly. Everything else is read from the store as fast
 * as the client reads; nothing is queued, a connection that is behind holds one event, and a client that reads
 * nothing for `stalled` is broken off. The cost of polling: without a relay, a connection away from its appender
 * reads after 20 ms, then twice as late each time, up to a second: one read a second for each idle stream, and up to
 * a second's delay after a pause. With a relay, and beside the appender, it is one read in five seconds (in case a
 * message was lost).
 *
 * Records are stored under a digest of the stream's id and its scope (session or caller), so a foreign id and an
 * unknown one take the same path and get the same reply. Pruning counts positions and lists nothing: a mark is
 * written, then older entries are deleted, without delaying the appender. A burst is kept for a connection in the
 * appender's process, up to eight times the usual number, so that a client which reads is not broken off by a tool
 * that sends much at once. A connection that needs pruned entries is refused, one that fell behind them is broken
 * off; neither skips.
 *
 * A session's standing stream has an id that every process can derive, and an appender in each, which continue after
 * one another. When a connection ends, its position is recorded, for a client that comes without `Last-Event-ID`;
 * after a crash that record is missing, and such a client gets later events only.
 */
import { randomBytes } from 'node:crypto';
import { type Clock, defined, every, type JsonObject, type Repeating } from '../base/values.ts';
import type { Limits } from '../call/limits.ts';
import { type Relay, RelayListener } from '../call/ports.ts';
import { Appender } from './appender.ts';
import { ContentBytes, type ContentLimits } from './content-bytes.ts';
import {
  expiryOf,
  isStandingId,
  newStreamId,
  parseEventId,
  recordsName,
  standingId,
  unknownEvent,
} from './event-id.ts';
import { type Local, Locals } from './locals.ts';
import { isLast, prevAfter, type StreamEnd, type StreamEntry, type StreamEvent, StreamLog } from './log.ts';
import { memoryRecords, type StreamRecords } from './records.ts';
import { type Sink, Tail, type TailEnd } from './tail.ts';

const SWEEP_EVERY = 60_000;
/** Factor on polling pauses where the relay, or this process itself, reports new entries. */
const TOLD = 5;

export interface StreamParts {
  /** Where streams are kept; without, in this process's memory. */
  readonly records?: StreamRecords;
  readonly relay?: Relay;
  readonly clock: Clock;
  /** Limits of the characters of events, if they are kept in this process's memory. */
  readonly bytes?: ContentLimits | undefined;
  readonly limits: Pick<Limits, 'streamEvents' | 'streams' | 'streamLife' | 'streamPoll' | 'eventIdBytes'>;
  readonly warn: (message: string, detail: JsonObject) => void;
}

/** A place in a stream that a connection may follow it from. */
export interface StreamPlace {
  /** Closes the stream's older connection. When the store fails the sink is ended; this never rejects. */
  follow(sink: Sink): Promise<void>;
}

interface How {
  readonly isLasting?: boolean;
  readonly owner?: string | undefined;
}

export class EventStreams {
  readonly #parts: StreamParts;
  readonly #records: StreamRecords;
  readonly #contents: ContentBytes | undefined;
  /** The name by which other processes wake this one. */
  readonly #self = randomBytes(9).toString('base64url');
  readonly #locals: Locals;
  readonly #listening: RelayListener;
  readonly #sweeping: Repeating;
  /** Set by `close`: a connection that was still claiming its stream then ends as soon as it has it. */
  #closed = false;

  constructor(parts: StreamParts) {
    const { clock, limits, warn } = parts;
    this.#parts = parts;
    this.#records = parts.records ?? memoryRecords(clock);
    const failed = (error: unknown): void => warn('an old event could not be deleted', { error });
    const remove = (name: string): void => void this.#records.remove(name).catch(failed);
    this.#contents = parts.bytes && new ContentBytes(parts.bytes, remove);
    this.#locals = new Locals(limits.streams, (error) =>
      warn('a stream could not be deleted; it stays until it expires', { error }),
    );
    this.#listening = new RelayListener(
      parts.relay,
      relayName(this.#self),
      (name) => this.#locals.get(name)?.tail?.look(),
      warn,
    );
    this.#sweeping = every(clock, Math.min(SWEEP_EVERY, limits.streamLife), () =>
      this.#locals.sweep(clock.now(), limits.streamLife),
    );
  }

  /**
   * A new stream, whose one appender is here. Nothing is written yet.
   * @param scope the session or caller that it belongs to
   * @param expires milliseconds since the epoch; nothing of it is kept longer
   * @param how `id`: an unused one of `newStreamId`; `owner`: the known caller that it belongs to
   * @throws AwaitError `limit` when the scope has `limits.streams` that are not finished
   */
  open(
    scope: string,
    expires = this.#parts.clock.now() + this.#parts.limits.streamLife,
    { id = newStreamId(expires), owner }: { id?: string; owner?: string | undefined } = {},
  ): Appender {
    const log = this.#logOf(id, scope, owner);
    const local = this.#locals.of(log, scope);
    try {
      this.#locals.count(local);
    } catch (error) {
      this.#locals.release(local);
      throw error;
    }
    local.isFresh = true;
    local.appender = this.#appender(local, { at: 0 }, { owner });
    return local.appender;
  }

  /**
   * Room for a stream of a scope that may be opened later.
   * @returns how to give it back
   * @throws AwaitError `limit` as `open`
   */
  reserve(scope: string): () => void {
    return this.#locals.reserve(scope);
  }

  /** The stream of a scope that every process finds by itself, and that each may append to. */
  standing(scope: string, expires: number, owner?: string): Appender {
    return this.shared(standingId(scope, expires), scope, { isLasting: true, owner });
  }

  /**
   * A stream that each process may append to, and knows by its id (`sharedId`).
   *
   * @param how `end`: where it is appended to, if nothing else was appended since; `isLasting`: it serves many requests, and an event of it
   * is kept for `limits.streamLife`; `owner`: the known caller that it belongs to
   */
  shared(id: string, scope: string, how: How & { readonly end?: StreamEnd } = {}): Appender {
    const local = this.#locals.of(this.#logOf(id, scope, how.owner), scope);
    if (how.end !== undefined) local.isJoined = true;
    local.appender ??= this.#appender(local, how.end, how);
    return local.appender;
  }

  /**
   * The place after the last event of a client.
   * @throws AwaitError `bad-token`, with one message for every reason; `store`
   */
  async resume(lastEventId: string, scope: string, owner?: string): Promise<StreamPlace> {
    const place = parseEventId(lastEventId, this.#parts.limits.eventIdBytes);
    if (place === undefined) throw unknownEvent('it is no event id of ours');
    return this.find(place.stream, place.sequence, scope, owner);
  }

  /**
   * @param after the sequence of the last event that the client has; `new`: events that no connection has had
   * @param owner the known caller that it belongs to
   * @throws AwaitError as `resume` does
   */
  async find(id: string, after: number | 'new', scope: string, owner?: string): Promise<StreamPlace> {
    const log = this.#log(id, scope, owner);
    const isNew = this.#locals.get(log.name)?.appender?.isNew === true && after === 0;
    const needsNone = isNew || (isStandingId(id) && (after === 'new' || after === 0));
    const from = needsNone || after === 'new' ? after : await log.after(after);
    if (from === undefined) throw unknownEvent(`stream ${log.name} has nothing after ${String(after)}`);
    return {
      follow: async (sink) => {
        const local = this.#locals.of(log, scope);
        local.uses += 1;
        // One after the other, so that the newer one wins.
        local.last = local.last.then(() => this.#follow(local, from, sink)).finally(() => (local.uses -= 1));
        await local.last;
        this.#locals.release(local);
      },
    };
  }

  /**
   * What is taken of the events of a stream that are kept, the calls that it names, and where it ends.
   * @returns undefined once the stream has ended
   * @throws AwaitError `bad-token` for a stream that has expired; `store`
   */
  async events<T>(
    id: string,
    scope: string,
    owner: string | undefined,
    take: (event: StreamEvent) => T,
  ): Promise<
    | {
        readonly events: readonly T[];
        readonly calls: readonly { readonly callId: string; readonly requestId: string | number }[];
        readonly end: StreamEnd;
      }
    | undefined
  > {
    const log = this.#log(id, scope, owner);
    const { oldest } = await log.mark();
    const events: T[] = [];
    const calls: { callId: string; requestId: string | number }[] = [];
    // A function of its own: V8 keeps the variables of a function that waits, and the last event may be long.
    const read = async (at: number): Promise<StreamEntry | undefined> => {
      const entry = await log.read(at);
      if (entry?.kind === 'call') calls.push({ callId: entry.callId, requestId: entry.requestId });
      if (entry?.kind !== 'event') return entry;
      events.push(take(entry.event));
      return { ...entry, event: {} };
    };
    let end: StreamEnd = { at: oldest - 1 };
    for (;;) {
      const at = end.at + 1;
      const entry = await read(at);
      if (entry === undefined) return { events, calls, end };
      if (isLast(entry)) return undefined;
      end = { at, entry };
    }
  }

  /** Ends the connection that follows a stream here; its client may come back. */
  disconnect(id: string, scope: string): void {
    this.#locals.get(this.#log(id, scope).name)?.tail?.disconnect('closed');
  }

  /** This process leaves: ends every connection here whose stream can continue elsewhere. */
  handOverAll(): void {
    this.#locals.handOverAll();
  }

  /**
   * Ends the connection of a standing stream, in whichever process it is; its client may come back.
   * @throws AwaitError `store`
   */
  async endConnection(id: string, scope: string): Promise<void> {
    const log = this.#log(id, scope);
    const local = this.#locals.of(log, scope);
    local.uses += 1;
    const end = async (): Promise<void> => {
      if (local.tail !== undefined) local.tail.end('closed');
      else if ((await log.had())?.live) {
        // As a new connection would do it, which has nothing yet.
        const { at } = await this.#claim(local, 0);
        await log.writeHad(at, false);
      }
    };
    const ended = local.last.then(end).finally(() => {
      local.uses -= 1;
      this.#locals.release(local);
    });
    local.last = ended.catch(() => {});
    await ended;
  }

  /** Drops this process's state of a shared stream unless a connection follows it here; other processes keep theirs. */
  leave(id: string, scope: string): void {
    const local = this.#locals.get(recordsName(id, scope));
    if (local === undefined || local.tail !== undefined) return;
    local.appender = undefined;
    this.#locals.release(local);
  }

  /** Ends and deletes the streams of a scope in this process. */
  drop(scope: string): void {
    this.#locals.drop(scope);
  }

  /** Ends a stream's connections here, and deletes it. */
  async remove(id: string, scope: string): Promise<void> {
    const log = this.#logOf(id, scope);
    const local = this.#locals.get(log.name);
    if (local !== undefined) this.#locals.forget(local);
    await log.removeAll((await log.end()).at);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#sweeping.cancel();
    await this.#locals.close();
    await this.#listening.close();
  }

  #log(id: string, scope: string, owner?: string): StreamLog {
    const expires = expiryOf(id);
    if (!(expires >= this.#parts.clock.now())) throw unknownEvent("it has expired, or is no stream's id");
    return this.#logOf(id, scope, owner);
  }

  #logOf(id: string, scope: string, owner?: string): StreamLog {
    return new StreamLog(this.#records, id, scope, owner, this.#contents);
  }

  #appender(local: Local, end?: StreamEnd, { isLasting, owner }: How = {}): Appender {
    const { clock, limits, warn } = this.#parts;
    local.caller = { name: owner };
    const appender: Appender = new Appender(
      {
        log: local.log,
        self: this.#self,
        shared: isStandingId(local.log.id),
        most: limits.streamEvents,
        ...(isLasting === true && { life: limits.streamLife }),
        ...defined({ owner }),
        clock,
        needed: () => (local.isFresh ? 1 : local.tail && local.tail.position + 1),
        written: (at, entry) => {
          if (entry.reader === this.#self) local.tail?.offer(at, entry);
          else this.#wake(entry.reader, local);
        },
        found: (at, entry) => {
          if (entry.kind === 'claim' && entry.reader !== this.#self) local.tail?.claimedAt(at);
          else local.tail?.look();
        },
        done: () => {
          if (local.appender !== appender) return;
          this.#locals.done(local, clock.now());
          this.#locals.release(local);
        },
        warn: (message, error) => warn(message, { error }),
      },
      end,
    );
    return appender;
  }

  async #follow(local: Local, after: number | 'new', sink: Sink): Promise<void> {
    const { log } = local;
    delete local.isFresh;
    let tail: Tail | undefined;
    try {
      let from = after === 'new' ? 0 : after;
      let claimed = 0;
      const isNew = local.appender?.isNew === true;
      let isOver = false;
      if (!isNew) {
        const end = await this.#claim(local, from);
        claimed = end.at;
        if (after === 'new') from = await this.#undelivered(local, claimed);
        isOver = isLast(end.entry) && from >= end.at;
      }
      local.tail?.end('replaced');
      if (isOver) {
        sink.end('finished');
        return;
      }
      tail = new Tail({
        log,
        sink,
        self: this.#self,
        owner: local.caller === undefined ? local.scope : local.caller.name,
        clock: this.#parts.clock,
        from,
        claimed,
        pace: () => this.#pace(local),
        oldest: () => (local.appender?.isOpen && !isStandingId(log.id) ? local.appender.oldest : undefined),
        stopped: (stopped, why) => this.#stopped(local, stopped, why),
      });
      if (!tail.isOpen) return;
      local.tail = tail;
      if (isStandingId(log.id)) await log.writeHad(from, true);
      // An appender whose first event is on its way delivers it itself.
      if (this.#closed) tail.end('leaving');
      else tail.start(!isNew);
    } catch (error) {
      this.#parts.warn('a stream cannot be followed', { error });
      if (tail === undefined) sink.end('failed');
      else tail.end('failed');
    }
  }

  /** @returns the position up to which older claims count; later entries go to this process */
  async #claim(local: Local, known: number): Promise<StreamEnd> {
    const { log } = local;
    const self = this.#self;
    let end = await log.end(Math.max(known, local.appender?.position ?? 0));
    while (!isLast(end.entry) && end.entry?.reader !== self) {
      const { writer = '', reader = '' } = end.entry ?? {};
      const at = end.at + 1;
      const entry: StreamEntry = { kind: 'claim', prev: prevAfter(end), writer, reader: self };
      if (await log.insert(at, entry)) {
        for (const name of new Set([writer, reader])) this.#wake(name, local);
        return { at, entry };
      }
      end = await log.end(at);
    }
    return end;
  }

  async #undelivered(local: Local, claimed: number): Promise<number> {
    const older = local.tail;
    if (older !== undefined) {
      older.end('replaced');
      return older.position;
    }
    const had = await local.log.had();
    // Another connection was open until now, and had all events so far.
    if (had?.live) return claimed;
    const { oldest } = await local.log.mark();
    return local.log.unexpired(Math.max(had?.at ?? 0, oldest - 1));
  }

  #stopped(local: Local, tail: Tail, why: TailEnd | undefined): void {
    if (local.tail !== tail) return;
    local.tail = undefined;
    const { log } = local;
    if (isStandingId(log.id) && why !== 'replaced') {
      local.uses += 1;
      local.last = local.last
        .then(() => log.writeHad(tail.position, false))
        .catch((error: unknown) => this.#parts.warn('a stream is in doubt', { error }))
        .finally(() => {
          local.uses -= 1;
          this.#locals.release(local);
        });
    }
    this.#locals.release(local);
  }

  #pace(local: Local): { most: number; growing: boolean } | undefined {
    if (this.#parts.records === undefined) return undefined;
    const { streamPoll } = this.#parts.limits;
    const isWriter = local.appender?.isOpen === true && !isStandingId(local.log.id) && !local.isJoined;
    return isWriter || this.#listening.isOn
      ? { most: streamPoll * TOLD, growing: false }
      : { most: streamPoll, growing: true };
  }

  #wake(name: string, local: Local): void {
    if (name === '' || name === this.#self) return;
    this.#parts.relay?.send(relayName(name), local.log.name).catch((error: unknown) => {
      this.#parts.warn('the relay failed to send', { error });
    });
  }
}

function relayName(process: string): string {
  return `streams.${process}`;
}
