/**
 * One connection that follows one stream: first the kept events after its starting point, then new ones, until the
 * stream ends, another connection claims it, or the client disconnects. Events of this process are passed on at once;
 * others are read from the store. Nothing is queued: while the client is behind, nothing is read, so a connection costs
 * one event at most.
 */
import type { Clock, Timer } from '../base/clock.ts';
import { eventId } from './event-id.ts';
import type { StreamEntry, StreamEvent, StreamLog } from './log.ts';

export type TailEnd =
  /** The last event was given. */
  | 'finished'
  /** A newer connection has the stream. */
  | 'replaced'
  /** Events were deleted before the peer took them, or it took nothing for too long. */
  | 'behind'
  | 'expired'
  /** The store cannot be read. */
  | 'failed'
  /** This process leaves: the client is to come back to another one. */
  | 'leaving'
  /** From outside: the session ended, the client is to come back later. */
  | 'closed';

/** Where events go: a connection. */
export interface Sink {
  /** @returns false when the peer is behind: no more is given until it is ready */
  send(event: StreamEvent, id: string): boolean;
  /** Calls when the peer has caught up. */
  onReady(fn: () => void): void;
  /** Calls `fn` when the client disconnects. */
  onClose(fn: () => void): void;
  /** Called once. */
  end(why: TailEnd): void;
}

export interface TailOptions {
  readonly log: StreamLog;
  readonly sink: Sink;
  readonly self: string;
  readonly clock: Clock;
  /** The position after which it begins. */
  readonly from: number;
  /** Claims up to here are history. */
  readonly claimed: number;
  /** Longest pause between looks, in milliseconds, and whether there is a reason to look sooner at first. */
  readonly pace: () => { readonly most: number; readonly growing: boolean } | undefined;
  /** The oldest position kept, where this process knows it. */
  readonly oldest: () => number | undefined;
  /** `why` is absent if the client disconnected. */
  readonly stopped: (tail: Tail, why?: TailEnd) => void;
}

const FIRST_PAUSE = 20;
/** Empty polls before it checks whether the next entry was deleted. */
const LOOKS = 8;
/** Reads that may fail one after the other. */
const FAILURES = 5;

export class Tail {
  readonly #options: TailOptions;
  #cursor: number;
  #state: 'idle' | 'reading' | 'behind' | 'ended' = 'idle';
  #again = false;
  /** The next look asks whether the next entry was deleted. */
  #doubts = false;
  /** It ends with the first event that it gives. */
  #leaving = false;
  #looks = 0;
  #failures = 0;
  #pause = FIRST_PAUSE;
  #timer: Timer | undefined;

  constructor(options: TailOptions) {
    this.#options = options;
    this.#cursor = options.from;
    options.sink.onReady(() => this.#caughtUp());
    options.sink.onClose(() => this.#stop());
  }

  /** Everything up to here was given. */
  get position(): number {
    return this.#cursor;
  }

  get isOpen(): boolean {
    return this.#state !== 'ended';
  }

  /** An entry was written here. */
  offer(at: number, entry: StreamEntry): void {
    if (this.#state === 'idle' && at === this.#cursor + 1) this.#give(at, entry);
    else this.look();
  }

  /** Another process claimed the stream at this position; a claim older than this connection's own is nothing. */
  claimedAt(at: number): void {
    if (at > this.#options.claimed) this.end('replaced');
  }

  /** There may be something to read. */
  look(): void {
    this.#again = true;
    if (this.#state === 'idle') void this.#read();
  }

  /** Reads, and then polls. */
  start(now: boolean): void {
    if (now) this.look();
    else this.#arm();
  }

  /** Its client is to come back for the rest; without an event it would know no id to come back with. */
  disconnect(): void {
    if (this.#cursor > 0) this.end('closed');
    else this.#leaving = true;
  }

  end(why: TailEnd): void {
    if (this.#stop(why)) this.#options.sink.end(why);
  }

  async #read(): Promise<void> {
    this.#timer?.cancel();
    this.#state = 'reading';
    while (this.#again && this.#state === 'reading') {
      this.#again = false;
      try {
        await this.#readOn();
        this.#failures = 0;
      } catch {
        // The appender reports a store that is down; here the read is retried, more slowly each time.
        this.#failures += 1;
        this.#pause *= 4;
        if (this.#failures >= FAILURES) this.end('failed');
      }
    }
    if (this.#state !== 'reading') return;
    this.#state = 'idle';
    this.#arm();
  }

  /** Sends the events in the store; returns after the last one, or when the connection stops. */
  async #readOn(): Promise<void> {
    const { log } = this.#options;
    while (this.#state === 'reading') {
      const at = this.#cursor + 1;
      const entry = await log.read(at);
      if (this.#state !== 'reading') return;
      if (entry !== undefined) {
        this.#pause = FIRST_PAUSE;
        this.#looks = 0;
        this.#give(at, entry);
        continue;
      }
      this.#looks += 1;
      const known = this.#options.oldest();
      const asks = known === undefined && (this.#doubts || this.#looks % LOOKS === 0);
      const oldest = asks ? (await log.mark()).oldest : (known ?? 0);
      this.#doubts = false;
      if (oldest > at) this.end('behind');
      return;
    }
  }

  #give(at: number, entry: StreamEntry): void {
    const { log, sink, self } = this.#options;
    this.#cursor = at;
    switch (entry.kind) {
      case 'event': {
        const keepsUp = sink.send(entry.event, eventId(log.id, at));
        if (entry.last) this.end('finished');
        else if (this.#leaving) this.end('closed');
        // The sink may have ended it by now.
        else if (!keepsUp && this.isOpen) {
          this.#state = 'behind';
          this.#timer?.cancel();
        }
        break;
      }
      case 'apart':
        this.end('behind');
        break;
      case 'end':
        this.end('finished');
        break;
      case 'claim':
        if (entry.reader !== self) this.claimedAt(at);
        break;
      case 'taken':
        break;
    }
  }

  #caughtUp(): void {
    if (this.#state !== 'behind') return;
    this.#state = 'idle';
    this.#doubts = true;
    this.look();
  }

  #arm(): void {
    const { clock, log, pace } = this.#options;
    this.#timer?.cancel();
    const left = log.expires - clock.now();
    if (left < 0) {
      this.end('expired');
      return;
    }
    const { most, growing } = pace() ?? { most: Number.POSITIVE_INFINITY, growing: false };
    const pause = growing ? Math.min(this.#pause, most) : most;
    this.#pause *= 2;
    // Where no other process can append, only the stream's expiry is left to wait for.
    this.#timer = clock
      .after(Math.min(pause, left + 1), () => (most === Number.POSITIVE_INFINITY ? this.#arm() : this.look()))
      .unref();
  }

  #stop(why?: TailEnd): boolean {
    if (this.#state === 'ended') return false;
    this.#state = 'ended';
    this.#timer?.cancel();
    this.#options.stopped(this, why);
    return true;
  }
}
