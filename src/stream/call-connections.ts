/**
 * The connections of this process that read the replies of calls: cursors over the calls' logs.
 * 1. An event is an entry of its call's log, in the store before a connection gets it. Nothing is stored for the reply.
 * 2. A call has one connection. One that comes back appends `reading`: an older one ends where it meets that entry, and
 *    its process sends nothing behind it, since it must win the next position first.
 * 3. Entries that are written or read here are passed on at once; others are read when the connection gets there.
 */
import { type Clock, defined, keepNewest } from '../base/values.ts';
import { type CallRecord, type Entry, isEnd } from '../call/journal/entries.ts';
import { streamIdOf } from './event-id.ts';
import type { StreamEvent } from './log.ts';
import { type Feed, type Projected, type Sink, Tail, type TailEnd, type TailEntry } from './tail.ts';

/** Entries that wait for their connection; beyond that they are read again. */
const EARLY = 16;
/** Calls of which it is remembered which process has their connection. */
const ELSEWHERE = 10_000;

export interface CallConnectionParts {
  readonly clock: Clock;
  /** @throws AwaitError `store` */
  readonly read: (callId: string, position: number, owner: string | undefined) => Promise<Entry | undefined>;
  /** Tells a process that there is more in the log of a call. */
  readonly wake: (callId: string, by: string) => void;
}

/** The events that an entry is for a call's client. */
export type Projection = (entry: Entry) => Projected;

export interface Begin {
  readonly callId: string;
  /** Its known caller. */
  readonly owner?: string | undefined;
  /** Of the call, in milliseconds since the epoch. */
  readonly expires: number;
  readonly project: Projection;
  /** What its client gets where the log has expired without an end. */
  readonly expired: () => StreamEvent;
  /** The name of this connection in the log. */
  readonly connection: string;
  /** The event that its client had last; absent for a new reply. */
  readonly after?: { readonly sequence: number; readonly nth?: number };
}

export class CallConnection {
  readonly #begin: Begin;
  readonly #parts: CallConnectionParts;
  readonly #stopped: (connection: CallConnection) => void;
  #early: [at: number, entry: Entry, isKept: boolean][] = [];
  #tail: Tail | undefined;
  readonly #gone = new AbortController();
  /** In the numbers of its events. */
  #newest = 0;
  #hasEnd = false;
  #hasTurn = false;
  #ending: 'closed' | 'leaving' | undefined;
  #onSaid: () => void = () => {};

  constructor(begin: Begin, parts: CallConnectionParts, stopped: (connection: CallConnection) => void) {
    this.#begin = begin;
    this.#parts = parts;
    this.#stopped = stopped;
  }

  get callId(): string {
    return this.#begin.callId;
  }

  /** Whether the end of a turn came to it. */
  get hasTurn(): boolean {
    return this.#hasTurn;
  }

  /** Calls once, with the first event that comes to it. */
  onSaid(fn: () => void): void {
    this.#onSaid = fn;
  }

  /** Whether the log's last entry came to it. */
  get hasEnd(): boolean {
    return this.#hasEnd;
  }

  get isOpen(): boolean {
    return !this.#gone.signal.aborted;
  }

  /** Whether its client is still to be there. */
  get isWaiting(): boolean {
    return this.isOpen && this.#tail === undefined;
  }

  /** Fires when it is over. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** The entry by which it ends older ones. @param by this process, where others can reach it */
  entry(by: string | undefined): Extract<Entry, { type: 'reading' }> {
    return { type: 'reading', connection: this.#begin.connection, ...defined({ by }) };
  }

  /** Its client went away before it was there. */
  unattached(): void {
    if (this.isWaiting) this.#stop();
  }

  /** Its client is there. */
  attach(sink: Sink): void {
    if (!this.isOpen) {
      sink.end('closed');
      return;
    }
    const { callId, owner, expires, project, expired, connection, after } = this.#begin;
    const feed: Feed = {
      id: streamIdOf(callId),
      expires,
      read: async (at) => {
        const entry = await this.#parts.read(callId, at - 1, owner);
        return entry && projected(entry, project);
      },
    };
    const tail = new Tail({
      log: feed,
      sink,
      expired,
      self: connection,
      owner,
      clock: this.#parts.clock,
      from: this.#from,
      had: after?.nth ?? 0,
      isResumed: after !== undefined,
      isAgain: after?.nth === 0,
      claimed: 0,
      pace: () => undefined,
      oldest: () => undefined,
      newest: () => this.#newest,
      stopped: () => this.#stop(),
    });
    if (!tail.isOpen) return;
    this.#tail = tail;
    const early = this.#early.splice(0);
    for (const [at, entry, isKept] of early) tail.offer(at, projected(entry, project), isKept);
    tail.start(early.length >= EARLY);
    if (this.#ending !== undefined) tail.disconnect(this.#ending);
  }

  /** The number after which it begins. An entry of which its client had a part comes again, without that part. */
  get #from(): number {
    const { after } = this.#begin;
    return after === undefined ? 0 : after.sequence - (after.nth === undefined ? 0 : 1);
  }

  /** An entry was written or read here. @param position in the call's log, which has its messages if `isKept` */
  offer(position: number, entry: Entry, isKept = true): void {
    const at = position + 1;
    if (isEnd(entry)) this.#hasEnd = true;
    // A request of an earlier turn may still read the entries before this connection's start.
    if (at <= this.#from) return;
    if (isEnd(entry) || entry.type === 'suspended') this.#hasTurn = true;
    else if (entry.type === 'notified') this.#onSaid();
    this.#newest = Math.max(this.#newest, at);
    if (this.#tail !== undefined) this.#tail.offer(at, projected(entry, this.#begin.project), isKept);
    else if (!isKept || this.#early.length < EARLY) this.#early.push([at, entry, isKept]);
  }

  /** Sends an event that is in no log. */
  pass(event: StreamEvent): void {
    this.#onSaid();
    this.#tail?.pass(event);
  }

  /** Reads what is there already. */
  catchUp(): void {
    this.#tail?.look();
  }

  /** Its client is to come back for the rest, once it is there and has an id to come back with. */
  disconnect(why: 'closed' | 'leaving'): void {
    if (this.isWaiting) this.#ending = why;
    this.#tail?.disconnect(why);
  }

  end(why: TailEnd): void {
    this.unattached();
    this.#tail?.end(why);
  }

  #stop(): void {
    if (!this.isOpen) return;
    this.#gone.abort();
    this.#stopped(this);
  }
}

export class CallConnections {
  readonly #parts: CallConnectionParts;
  readonly #byCall = new Map<string, CallConnection>();
  /** The processes that have the connections of calls that run here. */
  readonly #elsewhere = new Map<string, string>();
  #isLeaving = false;

  constructor(parts: CallConnectionParts) {
    this.#parts = parts;
  }

  /** A connection for the reply of a call; an older one here ends. */
  open(begin: Begin): CallConnection {
    this.#byCall.get(begin.callId)?.end('replaced');
    const connection = new CallConnection(begin, this.#parts, (stopped) => {
      if (this.#byCall.get(stopped.callId) === stopped) this.#byCall.delete(stopped.callId);
    });
    this.#byCall.set(begin.callId, connection);
    return connection;
  }

  get(callId: string): CallConnection | undefined {
    return this.#byCall.get(callId);
  }

  /** This process has written an entry. @param isKept whether with its messages */
  written(call: CallRecord, position: number, entry: Entry, isKept?: boolean): void {
    this.#byCall.get(call.id)?.offer(position, entry, isKept);
    if (entry.type === 'reading') this.#elsewhere.delete(call.id);
    const by = this.#elsewhere.get(call.id);
    if (by !== undefined) this.#parts.wake(call.id, by);
    if (isEnd(entry)) this.#elsewhere.delete(call.id);
    if (this.#isLeaving && entry.type === 'suspended') this.#byCall.get(call.id)?.disconnect('leaving');
  }

  /**
   * Another process wrote an entry of a call that runs here, or whose turn a client here waits for. A connection here
   * that it ends reads that for itself.
   */
  received(callId: string, position: number, entry: Entry): void {
    this.#byCall.get(callId)?.offer(position, entry);
    if (entry.type !== 'reading' || entry.by === undefined) return;
    this.#elsewhere.set(callId, entry.by);
    keepNewest(this.#elsewhere, ELSEWHERE);
  }

  /** This process leaves: ends each connection whose call can continue elsewhere, one that stays once its turn ends. */
  handOverAll(mayStay: (callId: string) => boolean): void {
    this.#isLeaving = true;
    for (const connection of [...this.#byCall.values()])
      if (!mayStay(connection.callId)) connection.disconnect('leaving');
  }

  close(): void {
    for (const connection of [...this.#byCall.values()]) connection.end('leaving');
    this.#elsewhere.clear();
  }
}

function projected(entry: Entry, project: Projection): TailEntry {
  return entry.type === 'reading' ? { kind: 'reading', connection: entry.connection } : project(entry);
}
