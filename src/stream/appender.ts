/**
 * The appender of a stream. Events are written one after the other, each before a connection gets it. A stream has one
 * appender; those of a standing stream (one in each process that has the session) continue after one another.
 */
import { AwaitError, type Clock, LONG } from '../base/values.ts';
import { eventId } from './event-id.ts';
import {
  type EntryBody,
  isLast,
  prevAfter,
  type StreamEnd,
  type StreamEntry,
  type StreamEvent,
  type StreamLog,
} from './log.ts';

export interface AppenderOptions {
  readonly log: StreamLog;
  /** The name of this process. */
  readonly self: string;
  readonly shared: boolean;
  /** Events kept, and appends that may wait for the store. */
  readonly most: number;
  /** How long an event is kept, in milliseconds; without it, as long as the stream. */
  readonly life?: number;
  /** The known caller that the stream belongs to. */
  readonly owner?: string;
  readonly clock: Clock;
  /** The oldest position that a connection which keeps up is still to be given, if there is one. */
  readonly needed: () => number | undefined;
  /** An entry of this appender is in the store. */
  readonly written: (at: number, entry: StreamEntry) => void;
  /** Called when another process's entry has the position. */
  readonly found: (at: number, entry: StreamEntry) => void;
  /** Nothing will follow from here. */
  readonly done: () => void;
  readonly warn: (message: string, error: unknown) => void;
}

export class Appender {
  readonly #options: AppenderOptions;
  readonly #pruning: Pruning;
  /** Undefined until the end of a stream that others append to was looked for. */
  #end: StreamEnd | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #state: 'open' | 'finished' = 'open';

  /** @param end the last entry, if it is known */
  constructor(options: AppenderOptions, end?: StreamEnd) {
    this.#options = options;
    this.#end = end;
    this.#pruning = new Pruning(options.log, options.most, options.needed, (error) =>
      options.warn('the oldest events of a stream could not be deleted', error),
    );
  }

  get id(): string {
    return this.#options.log.id;
  }

  /** The name of its records; unlike its id, from which a call's id follows, it gives access to nothing. */
  get name(): string {
    return this.#options.log.name;
  }

  /** The position of the last entry known here. */
  get position(): number {
    return this.#end?.at ?? 0;
  }

  /** The oldest position that is surely kept. */
  get oldest(): number {
    return this.#pruning.oldest;
  }

  /** Whether no other process can have heard of the stream. */
  get isNew(): boolean {
    return this.#state === 'open' && this.#end !== undefined && this.#end.at === 0;
  }

  get isOpen(): boolean {
    return this.#state === 'open';
  }

  /**
   * Appends after all earlier appends. While the store fails, this and later appends wait for it.
   * @param last nothing follows: its connection is closed after this event
   * @returns the event's id, once it is in the store and followers in this process have it
   * @throws AwaitError `closed` after its end or its expiry,
   * `limit` when too many events wait for the store, `store` when this process closes
   */
  append(event: StreamEvent, last = false): Promise<string> {
    return this.#put({ kind: 'event', event, ...(last && { last }) }).then((at) => eventId(this.id, at));
  }

  /** Appends the name of a call whose log has the rest. @throws AwaitError as `append` */
  async refer(callId: string, requestId: string | number): Promise<void> {
    await this.#put({ kind: 'call', callId, requestId });
  }

  /** Ends the stream where it is; once more does nothing. */
  async finish(): Promise<void> {
    if (this.#state === 'open') await this.#put({ kind: 'end' });
  }

  /** The stream was deleted: nothing is appended any more, not even its end. */
  abandon(): void {
    this.#state = 'finished';
  }

  #put(body: EntryBody): Promise<number> {
    const { most } = this.#options;
    // Entries that end a stream are exempt: its client waits for them.
    const isBounded = body.kind === 'call' || (body.kind === 'event' && body.last !== true);
    if (isBounded && this.#waiting >= most) {
      const message = `${most} events of ${this.#name()} wait for the store already`;
      return Promise.reject(new AwaitError('limit', message));
    }
    this.#waiting += 1;
    const unpacked = packed(body);
    const done = this.#last.then(() => this.#write(unpacked()));
    this.#last = done.then(
      () => this.#settled(),
      () => this.#settled(),
    );
    return done;
  }

  #settled(): void {
    this.#waiting -= 1;
  }

  async #write(body: EntryBody): Promise<number> {
    const { log, self, shared, clock, owner, life = Infinity } = this.#options;
    if (this.#end === undefined) {
      await this.#pruning.load();
      this.#end = await log.end();
      if (isLast(this.#end.entry)) this.#refuse('finished');
    }
    for (;;) {
      if (this.#state !== 'open' || clock.now() > log.expires) this.#refuse(this.#state);
      const at: number = this.#end.at + 1;
      const reader: string = this.#end.entry?.reader ?? self;
      const entry: StreamEntry = { ...body, prev: prevAfter(this.#end), writer: self, reader };
      const inserted = await log.insert(at, entry, Math.min(clock.now() + life, log.expires), owner);
      const there = inserted ? entry : await log.read(at);
      if (there === undefined) throw new AwaitError('store', `${this.#name()} has lost its entry ${at}`);
      // Only claims of connections come between the events of a stream with one appender.
      if (!shared && !inserted && there.kind !== 'claim') this.#refuse('finished');
      this.#advance(at, there, inserted);
      if (inserted) return at;
    }
  }

  #advance(at: number, entry: StreamEntry, isOurs: boolean): void {
    this.#end = { at, entry: withoutContent(entry) };
    if (isOurs) {
      this.#options.written(at, entry);
      this.#pruning.upTo(at);
    } else this.#options.found(at, entry);
    if (!isLast(entry) || this.#state !== 'open') return;
    this.#state = 'finished';
    this.#options.done();
  }

  /** @throws AwaitError */
  #refuse(state: 'open' | 'finished'): never {
    const wasOpen = this.#state === 'open';
    this.#state = 'finished';
    if (wasOpen) this.#options.done();
    throw new AwaitError('closed', `${this.#name()} has ${state === 'open' ? 'expired' : 'ended'}`);
  }

  #name(): string {
    return `stream ${this.#options.log.name}`;
  }
}

/** An entry that waits for its turn: a long text, such as a result of 4 MB, waits outside of the heap. */
function packed(body: EntryBody): () => EntryBody {
  if (body.kind !== 'event') return () => body;
  const { event, ...rest } = body;
  const { data = '', ...head } = event;
  return data.length < LONG ? () => body : unpacking({ ...rest, event: head }, Buffer.from(data));
}

/** A function of its own: one made inside of `packed` would keep the text as well as its bytes. */
function unpacking(body: Extract<EntryBody, { kind: 'event' }>, data: Buffer): () => EntryBody {
  return () => ({ ...body, event: { ...body.event, data: String(data) } });
}

/** What the next entry follows; the content would be memory for as long as the stream lasts. */
function withoutContent(entry: StreamEntry): StreamEntry {
  if (entry.kind !== 'event') return entry;
  const { event: _, ...rest } = entry;
  return { ...rest, kind: 'apart', content: '' };
}

// --- events that are deleted ---

/**
 * Deletes a stream's oldest entries, in batches, without delaying its appender. A mark is written first, so a reader
 * that misses an entry can tell "deleted" from "not there yet". Keys are computed by counting; nothing is listed.
 */

/** Share of the kept entries that one batch deletes: a mark for each event would double the writes. */
const BATCH = 1 / 16;
/** Factor on the limit of kept entries while a connection is still reading them: it soon catches up with a burst. */
const BURST = 8;

class Pruning {
  readonly #log: StreamLog;
  readonly #most: number;
  readonly #batch: number;
  readonly #needed: () => number | undefined;
  readonly #failed: (error: unknown) => void;
  #oldest = 1;
  #end = 0;
  #running = false;

  /**
   * @param most entries that are kept
   * @param needed the oldest position that a connection is still to be given, if there is one
   */
  constructor(
    log: StreamLog,
    most: number,
    needed: () => number | undefined,
    failed: (error: unknown) => void,
  ) {
    this.#needed = needed;
    this.#log = log;
    this.#most = most;
    this.#batch = Math.max(1, Math.floor(most * BATCH));
    this.#failed = failed;
  }

  get oldest(): number {
    return this.#oldest;
  }

  /** Reads how far other processes have pruned. */
  async load(): Promise<void> {
    const { oldest } = await this.#log.mark();
    this.#oldest = Math.max(oldest, this.#oldest);
  }

  upTo(end: number): void {
    this.#end = end;
    if (this.#running || !this.#isDue()) return;
    this.#running = true;
    this.#prune()
      .catch(this.#failed)
      .finally(() => {
        this.#running = false;
      });
  }

  #isDue(): boolean {
    return this.#end - this.#oldest >= this.#most && this.#upTo() > this.#oldest;
  }

  /** The oldest position that stays. */
  #upTo(): number {
    const usual = this.#end - this.#most + this.#batch;
    const needed = this.#needed() ?? usual;
    return Math.max(Math.min(usual, needed), usual - this.#most * (BURST - 1));
  }

  async #prune(): Promise<void> {
    // More may have been appended in the meantime.
    while (this.#isDue()) {
      const from = this.#oldest;
      const oldest = this.#upTo();
      await this.#log.writeMark({ oldest });
      this.#oldest = oldest;
      const gone = Array.from({ length: oldest - from }, (_, nth) => from + nth);
      await this.#log.remove(gone);
    }
  }
}
