/**
 * One connection that follows one stream: first the kept events after its starting point, then new ones, until the
 * stream ends, another connection claims it, or the client disconnects. Events of this process are passed on at once;
 * others are read from the store. Nothing is queued: while the client is behind, nothing is read, so a connection costs
 * one event at most. An entry that the log has no room for, and those before it, are sent all the same: they wait as bytes
 * of the connection, which are counted.
 */
import { type Clock, LoopTurns, type Timer } from '../base/values.ts';
import { eventId } from './event-id.ts';
import type { StreamEntry, StreamEvent } from './log.ts';

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
  send(event: StreamEvent, id?: string): boolean;
  /** A call of the stream, whose log has its events. @param at the position of the entry that names it */
  call?(call: { readonly callId: string; readonly requestId: string | number }, at: number): void;
  /** Calls when the peer has caught up. */
  onReady(fn: () => void): void;
  /** Calls `fn` when the client disconnects. */
  onClose(fn: () => void): void;
  /** Called once. */
  end(why: TailEnd): void;
}

/** The events that an entry of a call's log is for its client. */
export interface Projected {
  readonly kind: 'events';
  readonly events: readonly StreamEvent[];
  /** Nothing follows. */
  readonly last?: boolean;
}

export type TailEntry = StreamEntry | Projected | { readonly kind: 'reading'; readonly connection: string };

/** What a connection reads. */
export interface Feed {
  /** The prefix of its events' ids. */
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
  /** @param at from 1 */
  read(at: number): Promise<TailEntry | undefined>;
  /** How far it is pruned, if it may be. */
  mark?(): Promise<{ readonly oldest: number }>;
}

export interface TailOptions {
  readonly log: Feed;
  readonly sink: Sink;
  /** Makes its last event where the log expires without an end. */
  readonly expired?: () => StreamEvent;
  readonly self: string;
  readonly clock: Clock;
  /** The position after which it begins, and how many events of the next one its client has. */
  readonly from: number;
  readonly had?: number;
  /** Whether its first entry was sent before: its events get other ids. */
  readonly isAgain?: boolean;
  /** Whether it is named in the log it reads; before that entry, others are history. */
  readonly isResumed?: boolean;
  /** Claims up to here are history. */
  readonly claimed: number;
  /** Longest pause between looks, in milliseconds, and whether there is a reason to look sooner at first. */
  readonly pace: () => { readonly most: number; readonly growing: boolean } | undefined;
  /** The oldest position kept, where this process knows it. */
  readonly oldest: () => number | undefined;
  /** The newest position that this process knows of. */
  readonly newest?: () => number;
  /** Whose stream it is: the name of its caller, or of its session. */
  readonly owner?: string | undefined;
  /** `why` is absent if the client disconnected. */
  readonly stopped: (tail: Tail, why?: TailEnd) => void;
}

/** What is there as a connection begins is sent an entry in a turn: many that come back at once would hold the loop. */
const turns = new LoopTurns();

const FIRST_PAUSE = 20;
/** Empty polls before it checks whether the next entry was deleted. */
const LOOKS = 8;
/** Reads that may fail one after the other: about five seconds. */
const FAILURES = 5;

export class Tail {
  readonly #options: TailOptions;
  #cursor: number;
  /** Events of the entry after that which were given. */
  #had: number;
  /** Entries that the log has without their events, by position, until they are given. */
  readonly #unkept = new Map<number, TailEntry>();
  /** Whether its client has an id of this stream. */
  #hasSent: boolean;
  /** Whether the entry was read by which this connection ends older ones. */
  #isReading = false;
  #state: 'idle' | 'reading' | 'behind' | 'ended' = 'idle';
  #again = false;
  #isRunning = false;
  /** Whether it reads what was there before it. */
  #isPast = true;
  /** The next look asks whether the next entry was deleted. */
  #doubts = false;
  /** Why it ends with the first event that it gives. */
  #ending: TailEnd | undefined;
  #looks = 0;
  #failures = 0;
  #pause = FIRST_PAUSE;
  #timer: Timer | undefined;

  constructor(options: TailOptions) {
    this.#options = options;
    this.#cursor = options.from;
    this.#had = options.had ?? 0;
    this.#hasSent = options.from > 0 || this.#had > 0;
    this.#isReading = options.isResumed !== true;
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

  /** An entry was written here. @param isKept whether the log has its events */
  offer(at: number, entry: TailEntry, isKept = true): void {
    if (!isKept && at > this.#cursor) {
      this.#unkept.set(at, entry);
      this.#caughtUp();
    }
    if (this.#state === 'idle' && at === this.#cursor + 1) {
      this.#isPast = false;
      this.#give(at, entry);
    } else if (at > this.#cursor) this.look();
  }

  /** Sends an event that no entry has, if its peer has all that were written. */
  pass(event: StreamEvent): void {
    if (this.#state === 'idle' && !this.#options.sink.send(event)) this.#fallBehind();
  }

  /** Another process claimed the stream at this position; a claim older than this connection's own is nothing. */
  claimedAt(at: number): void {
    if (at > this.#options.claimed) this.end('replaced');
  }

  /** There may be something to read. A store that failed gets a pause. */
  look(): void {
    this.#again = true;
    if (this.#failures === 0) this.#go();
  }

  /** Reads, and then polls. */
  start(now: boolean): void {
    if (now) this.look();
    else if (this.isOpen) this.#arm();
  }

  /** Its client is to come back for the rest; without an event it would know no id to come back with. */
  disconnect(why: 'closed' | 'leaving'): void {
    if (this.#hasSent) this.end(why);
    else this.#ending = why;
  }

  end(why: TailEnd): void {
    if (!this.#stop(why)) return;
    const { sink, expired } = this.#options;
    const isTold = why === 'expired' && expired !== undefined;
    if (isTold) sink.send(expired());
    sink.end(isTold ? 'finished' : why);
  }

  #go(): void {
    if (this.#state === 'idle' && !this.#isRunning) void this.#read();
  }

  /** A peer may fall behind and catch up before this goes on: then it begins once more. */
  async #read(): Promise<void> {
    this.#timer?.cancel();
    this.#isRunning = true;
    do {
      this.#again = false;
      this.#state = 'reading';
      try {
        await this.#readOn();
      } catch {
        // The appender reports a store that is down.
        this.#failures += 1;
        this.#pause *= 4;
        if (this.#failures >= FAILURES && this.#hasSent) this.end('failed');
      }
      if (this.#state === 'reading') this.#state = 'idle';
    } while (this.#again && this.#failures === 0 && this.#state === 'idle');
    this.#isRunning = false;
    if (this.#state !== 'idle') return;
    if (this.#failures === 0) this.#isPast = false;
    this.#arm();
  }

  /** Sends the events in the store; returns after the last one, or when the connection stops. */
  async #readOn(): Promise<void> {
    const { log, owner, newest } = this.#options;
    while (this.#state === 'reading') {
      if (this.#isPast) await turns.next(1, owner);
      const at = this.#cursor + 1;
      const wasThere = (newest?.() ?? 0) >= at;
      const entry = this.#unkept.get(at) ?? (await log.read(at));
      this.#failures = 0;
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
      const oldest = asks ? ((await log.mark?.())?.oldest ?? 0) : (known ?? 0);
      this.#doubts = false;
      if (oldest > at || wasThere) this.end('behind');
      return;
    }
  }

  #give(at: number, entry: TailEntry): void {
    const { log, sink, self } = this.#options;
    if (entry.kind === 'events') {
      this.#giveAll(at, entry);
      return;
    }
    this.#cursor = at;
    switch (entry.kind) {
      case 'reading':
        if (entry.connection === self) this.#isReading = true;
        else if (this.#isReading) this.end('replaced');
        break;
      case 'event': {
        this.#hasSent = true;
        const keepsUp = sink.send(entry.event, eventId(log.id, at));
        if (entry.last) this.end('finished');
        else if (this.#ending !== undefined) this.end(this.#ending);
        else if (!keepsUp) this.#fallBehind();
        break;
      }
      case 'call':
        sink.call?.(entry, at);
        break;
      case 'apart':
        this.end('behind');
        break;
      case 'end':
        this.end('finished');
        break;
      case 'claim':
        if (entry.reader !== self) this.claimedAt(at);
        break;
    }
  }

  /**
   * Each event has an id: of an entry's last one its position, of an earlier one that and its number, as of all of them
   * where they are sent again.
   */
  #giveAll(at: number, { events, last }: Projected): void {
    const { log, sink, isAgain } = this.#options;
    let keepsUp = true;
    for (let nth = this.#had; nth < events.length && keepsUp && this.isOpen; nth += 1) {
      const event = events[nth];
      if (event === undefined) break;
      this.#had = nth + 1;
      this.#hasSent = true;
      const id = eventId(log.id, at);
      const isPlain = this.#had === events.length && isAgain !== true;
      keepsUp = sink.send(event, isPlain ? id : `${id}.${this.#had}`) || this.#unkept.size > 0;
    }
    if (this.#had >= events.length) {
      this.#had = 0;
      this.#cursor = at;
      this.#unkept.delete(at);
      if (last) this.end('finished');
      else if (this.#ending !== undefined && events.length > 0) this.end(this.#ending);
    }
    if (!keepsUp) this.#fallBehind();
  }

  #fallBehind(): void {
    // The sink may have ended it by now.
    if (!this.isOpen) return;
    this.#state = 'behind';
    this.#timer?.cancel();
  }

  #caughtUp(): void {
    if (this.#state !== 'behind') return;
    this.#state = 'idle';
    this.#doubts = true;
    this.#again = true;
    this.#go();
  }

  #arm(): void {
    const { clock, log, pace } = this.#options;
    this.#timer?.cancel();
    const left = log.expires - clock.now();
    if (left < 0) {
      this.end('expired');
      return;
    }
    const { most, growing } =
      this.#failures > 0 ? { most: 2_000, growing: true } : (pace() ?? { most: Infinity, growing: false });
    const pause = growing ? Math.min(this.#pause, most) : most;
    this.#pause *= 2;
    // Where no other process can append, only the stream's expiry is left to wait for.
    this.#timer = clock
      .after(Math.min(pause, left + 1), () => (most === Infinity ? this.#arm() : this.#go()))
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
