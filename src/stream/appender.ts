/**
 * The appender of a stream. Events are written one after the other, each before a connection gets it. Taking a stream
 * over is an entry, on which the former appender loses its next position. The appenders of a standing stream (one in
 * each process that has the session) continue after one another.
 */

import type { Clock } from '../base/clock.ts';
import { AwaitError } from '../base/error.ts';
import { eventId } from './event-id.ts';
import {
  type End,
  type EntryBody,
  isLast,
  prevAfter,
  type StreamEntry,
  type StreamEvent,
  type StreamLog,
} from './log.ts';
import { Pruning } from './pruning.ts';

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
  readonly done: (why: 'finished' | 'fenced') => void;
  readonly warn: (message: string, error: unknown) => void;
}

export class Appender {
  /** Whether what is appended here is still to be told from here, after another process has taken the stream over. */
  owns: (() => Promise<boolean>) | undefined;
  readonly #options: AppenderOptions;
  readonly #pruning: Pruning;
  /** Undefined until the end of a stream that others append to was looked for. */
  #end: End | undefined;
  #takenAt: number | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #state: 'open' | 'finished' | 'fenced' = 'open';

  /** @param end the last entry, if it is known */
  constructor(options: AppenderOptions, end?: End) {
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

  /** The position at which it took the stream over. */
  get takenAt(): number | undefined {
    return this.#takenAt;
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
   * @param isDue whether it is appended even after another process took the stream over: a response that the call's
   * journal has
   * @returns the event's id, once it is in the store and followers in this process have it
   * @throws AwaitError `fenced` when another appender has taken the stream over, `closed` after its end or its expiry,
   * `limit` when too many events wait for the store, `store` when this process closes
   */
  async append(event: StreamEvent, last = false, isDue = false): Promise<string> {
    return eventId(this.id, await this.#put({ kind: 'event', event, ...(last && { last }) }, isDue));
  }

  /** Ends the stream where it is; once more does nothing. */
  async finish(): Promise<void> {
    if (this.#state === 'open') await this.#put({ kind: 'end' });
  }

  /** The stream was deleted: nothing is appended any more, not even its end. */
  abandon(): void {
    this.#state = 'finished';
  }

  /**
   * Makes the former appender's next append fail.
   * @param known the last entry, as far as the caller knows
   */
  take(known?: End): Promise<void> {
    return this.#take((body) => this.#put(body), known);
  }

  async #take(put: (body: EntryBody) => Promise<number>, known?: End): Promise<void> {
    const { log, most } = this.#options;
    // A short stream was not pruned, and will not be as this one appends.
    if (known === undefined || known.at * 2 >= most) await this.#pruning.load();
    const former = known ?? (await log.end());
    if (isLast(former.entry)) this.#refuse('finished');
    this.#end = former;
    const at = await put({ kind: 'taken' });
    this.#takenAt = at;
    await this.#pruning.load();
    // This position was deleted since we looked for the end: its appender is alive.
    if (at < this.oldest) {
      if (known === undefined) this.#refuse('fenced');
      await this.#take(put);
      return;
    }
    // The former appender's next position is one of these; it would find it free if its entry were deleted.
    await this.#pruning.keep((this.#end.entry?.prev ?? 0) + 1, at);
  }

  #put(body: EntryBody, isDue = false): Promise<number> {
    const { most } = this.#options;
    // Entries that end a stream or take it over are exempt: its client waits for them.
    const isBounded = body.kind === 'event' && body.last !== true;
    if (isBounded && this.#waiting >= most) {
      throw new AwaitError('limit', `${most} events of ${this.#name()} wait for the store already`);
    }
    this.#waiting += 1;
    const done = this.#last.then(() => this.#write(body, isDue));
    this.#last = done.then(
      () => this.#settled(),
      () => this.#settled(),
    );
    return done;
  }

  #settled(): void {
    this.#waiting -= 1;
  }

  async #write(body: EntryBody, isDue = false): Promise<number> {
    const { log, self, shared, clock, owner, life = Number.POSITIVE_INFINITY } = this.#options;
    if (this.#end === undefined) {
      await this.#pruning.load();
      this.#end = await log.end();
      if (isLast(this.#end.entry)) this.#refuse('finished');
    }
    if (isDue && this.#state === 'fenced') this.#state = 'open';
    for (;;) {
      if (this.#state !== 'open' || clock.now() > log.expires) this.#refuse(this.#state);
      const at: number = this.#end.at + 1;
      const reader: string = this.#end.entry?.reader ?? self;
      const entry: StreamEntry = { ...body, prev: prevAfter(this.#end), writer: self, reader };
      const inserted = await log.insert(at, entry, Math.min(clock.now() + life, log.expires), owner);
      const there = inserted ? entry : await log.read(at);
      if (there === undefined) throw new AwaitError('store', `${this.#name()} has lost its entry ${at}`);
      const goesOn =
        shared || inserted || there.kind === 'claim' || (body.kind === 'taken' && !isLast(there));
      if (!goesOn && !isLast(there) && (isDue || (await this.#isOwners(body)))) {
        await this.#take((taken) => this.#write(taken));
        this.#options.found(at, there);
        continue;
      }
      if (!goesOn) this.#refuse(body.kind === 'taken' ? 'finished' : 'fenced');
      this.#advance(at, there, inserted);
      if (inserted) return at;
    }
  }

  /** A process that slept may have taken the stream over after the call's owner did: the call's journal decides. */
  async #isOwners(body: EntryBody): Promise<boolean> {
    return body.kind === 'event' && (await this.owns?.()) === true;
  }

  #advance(at: number, entry: StreamEntry, isOurs: boolean): void {
    this.#end = { at, entry };
    if (isOurs) {
      this.#options.written(at, entry);
      this.#pruning.upTo(at);
    } else this.#options.found(at, entry);
    if (!isLast(entry) || this.#state !== 'open') return;
    this.#state = 'finished';
    this.#options.done('finished');
  }

  /** @throws AwaitError */
  #refuse(state: 'open' | 'finished' | 'fenced'): never {
    const wasOpen = this.#state === 'open';
    if (state === 'fenced') this.#state = 'fenced';
    else this.#state = 'finished';
    if (wasOpen) this.#options.done(this.#state);
    if (state === 'fenced') {
      throw new AwaitError('fenced', `${this.#name()} was taken over: another process appends to it`);
    }
    throw new AwaitError('closed', `${this.#name()} has ${state === 'open' ? 'expired' : 'ended'}`);
  }

  #name(): string {
    return `stream ${this.#options.log.name}`;
  }
}
