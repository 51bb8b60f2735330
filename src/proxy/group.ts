/**
 * The servers of one client: of a session, of a known caller, or of one call. Usually one; up to `children`, each
 * started when all the others are busy with a call that may ask.
 * It owns which call has the turn in which server, the queue for a turn (bounded in number and time), the session state
 * that every new server is given, and the delay before a server that ended is started again.
 */
import { AwaitError, type JsonObject, keepFitting, sleep, systemClock } from '../base/values.ts';
import { runOutsideContext } from '../call/frame/context.ts';
import type { Client } from '../call/journal/entries.ts';
import type { OpenLink } from './link.ts';
import { type Holder, type OutsideHandler, Peer, PeerGone, type PeerOptions } from './peer.ts';

export interface GroupOptions extends PeerOptions {
  /** The known caller that it is for. */
  readonly caller?: string | undefined;
  readonly openLink: OpenLink;
  /** Finds this client's server in another process. */
  readonly find?: () => Promise<OpenLink | undefined>;
  readonly children: number;
  /** Calls that may wait for a server of this client. */
  readonly queue: number;
  /** How long one may wait, in milliseconds. */
  readonly queueWait: number;
  /** Called before each start. @throws AwaitError `no-room` */
  readonly makeRoom?: () => Promise<void>;
  /** Whether it outlasts its leases. */
  readonly isKept?: boolean;
  readonly onClose?: () => void;
}

export interface PeerTurn {
  readonly peer: Peer;
  /** Passes the turn to the next in the queue. */
  done(): void;
}

interface Waiter {
  readonly holder: Holder;
  readonly grant: (turn: PeerTurn) => void;
  readonly refuse: (error: unknown) => void;
}

/** Pauses before a server that ended is started again, in milliseconds; the last for all that follow. */
const BACKOFF = [0, 250, 1_000, 4_000, 10_000];
/** For how long the group tries to start a server that ran before, in milliseconds: it may be restarting. */
const RESTART = 8_000;
/** A server that has lived so long is not one that ends at once, in milliseconds. */
const LIVED = 10_000;
/** How often the client's server may turn out to be in a process that is gone, as it is opened. */
const ELSEWHERE = 3;

export class Group {
  readonly client: Client;
  readonly caller: string | undefined;
  readonly #options: GroupOptions;
  readonly #peers = new Set<Peer>();
  /** Of this process and of others. */
  readonly leases = new Set<Required<OutsideHandler>>();
  #starting: Promise<Peer> | undefined;
  #waiters: Waiter[] = [];
  /** Requests that set session state, keyed by the state they set. */
  readonly #set = new Map<string, { readonly method: string; readonly params: JsonObject }>();
  #outside: OutsideHandler;
  #failures = 0;
  #hasServed = false;
  #closed = false;
  /** When it was last used, by the monotonic clock in milliseconds. */
  used = performance.now();

  /** @param outside receives messages that belong to no call */
  constructor(client: Client, options: GroupOptions, outside: OutsideHandler) {
    this.client = client;
    this.caller = options.caller;
    this.#options = options;
    this.#outside = outside;
  }

  get size(): number {
    return this.#peers.size + (this.#starting === undefined ? 0 : 1);
  }

  /** Whether it has work, or its session is in use. */
  get busy(): boolean {
    return (
      this.#starting !== undefined ||
      this.#waiters.length > 0 ||
      this.#outside.isUsed === true ||
      [...this.#peers].some(({ busy }) => busy)
    );
  }

  /** The last lease that leaves ends the group, unless it is kept. Else another lease receives what belongs to no call. */
  leave(lease: Required<OutsideHandler>): void {
    this.leases.delete(lease);
    const [left] = this.leases;
    if (this.#options.isKept) return;
    if (left === undefined) void this.close();
    else if (this.#outside === lease) this.sayOutside(left);
  }

  /** From here on, messages outside of calls go to `outside`. */
  sayOutside(outside: Required<OutsideHandler>): void {
    this.#outside = outside;
    for (const peer of this.#peers) {
      peer.outside = outside;
      void peer.askStrays((ask) => outside.ask(ask));
    }
  }

  /**
   * A server for a request that cannot ask.
   * @throws AwaitError `host-gone` when none can be started
   */
  async peer(): Promise<Peer> {
    this.used = performance.now();
    for (const peer of this.#peers) if (!peer.gone) return peer;
    return this.#start();
  }

  /** A server that runs any number of calls at the same time. */
  get concurrent(): Peer | undefined {
    this.used = performance.now();
    return [...this.#peers].find((peer) => peer.isConcurrent && !peer.gone);
  }

  /**
   * Waits for the turn in a server, for a call that may ask.
   * @throws AwaitError `host-gone` when no server can be started, `limit` when the queue is full or the wait too long
   */
  turn(holder: Holder): Promise<PeerTurn> {
    this.used = performance.now();
    const { queue, queueWait, name } = this.#options;
    if (this.#waiters.length >= queue) {
      const message = `${queue} calls wait for ${name} already; try again later`;
      return Promise.reject(new AwaitError('limit', message));
    }
    let timer: NodeJS.Timeout | undefined;
    return new Promise<PeerTurn>((grant, refuse) => {
      timer = setTimeout(() => {
        this.giveUp(holder);
        const message = `${name} runs one call that may ask at a time, and another one did not end within ${queueWait} ms; try again later`;
        refuse(new AwaitError('limit', message));
      }, queueWait);
      this.#waiters.push({ holder, grant, refuse });
      this.#serve();
    }).finally(() => clearTimeout(timer));
  }

  /** A call waits for its turn no longer. */
  giveUp(holder: Holder): void {
    this.#waiters = this.#waiters.filter((waiter) => waiter.holder !== holder);
  }

  /** Remembers an answered request that set session state; servers started later are sent it. */
  remember(method: string, { level, uri }: JsonObject): void {
    if (method === 'logging/setLevel') this.#set.set(method, { method, params: { level } });
    else if (method === 'resources/subscribe') this.#set.set(String(uri), { method, params: { uri } });
    else if (method === 'resources/unsubscribe') this.#set.delete(String(uri));
    keepFitting(this.#set);
  }

  /** A notification of the client's, for every server. */
  notify(message: JsonObject): void {
    for (const peer of this.#peers) peer.notify(message);
  }

  /** Ends its servers, and starts no other. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#options.onClose?.();
    for (const { refuse } of this.#waiters.splice(0)) refuse(this.#wasClosed());
    await this.rest();
  }

  /** Ends its servers; the next request starts another. */
  async rest(): Promise<void> {
    const peers = [...this.#peers];
    this.#peers.clear();
    await Promise.all(peers.map((peer) => peer.close()));
  }

  #wasClosed(): AwaitError {
    return new AwaitError('closed', `${this.#options.name} was closed`);
  }

  // --- servers ---------------------------------------------------------------------------------------

  #serve(): void {
    const free = [...this.#peers].filter((peer) => !peer.gone && peer.holder === undefined);
    for (const peer of free) {
      const waiter = this.#waiters.shift();
      if (waiter === undefined) return;
      this.#grant(peer, waiter);
    }
    if (this.#waiters.length === 0 || this.#starting !== undefined) return;
    if (this.#peers.size >= this.#options.children) return;
    this.#start().catch((error: unknown) => {
      // With another server running, calls wait for that.
      if (this.#peers.size > 0) return;
      for (const { refuse } of this.#waiters.splice(0)) refuse(error);
    });
  }

  #grant(peer: Peer, { holder, grant }: Waiter): void {
    peer.holder = holder;
    grant({
      peer,
      done: () => {
        if (peer.holder === holder) peer.holder = undefined;
        this.used = performance.now();
        this.#serve();
      },
    });
  }

  #start(): Promise<Peer> {
    this.#starting ??= runOutsideContext(() => this.#startNow()).finally(() => {
      this.#starting = undefined;
      this.#serve();
    });
    return this.#starting;
  }

  /** Before the next start. */
  get #pause(): number {
    return BACKOFF[Math.min(this.#failures, BACKOFF.length - 1)] ?? 0;
  }

  async #startNow(): Promise<Peer> {
    await this.#options.makeRoom?.();
    const { logger, name, openLink, find } = this.#options;
    const until = this.#hasServed ? performance.now() + RESTART : 0;
    let began: number;
    let peer: Peer;
    for (let tries = 1; ; tries += 1) {
      if (this.#pause > 0) await sleep(systemClock, this.#pause);
      if (this.#closed) throw this.#wasClosed();
      began = performance.now();
      try {
        peer = await Peer.open((await find?.()) ?? openLink, this.client, this.#options);
        break;
      } catch (error) {
        this.#failures += 1;
        const { cause } = AwaitError.from(error);
        // The process that has the client's server may have ended unnoticed.
        const isElsewhere = cause instanceof PeerGone && cause.how.elsewhere && tries < ELSEWHERE;
        if (!isElsewhere && performance.now() + this.#pause > until) throw error;
      }
    }
    this.#hasServed = true;
    if (this.#closed) {
      peer.kill();
      throw this.#wasClosed();
    }
    this.#peers.add(peer);
    peer.outside = this.#outside;
    peer.onGone(({ message, how: { planned } }) => {
      const isOurs = this.#peers.delete(peer);
      if (isOurs && !planned) {
        this.#failures = performance.now() - began > LIVED ? 1 : this.#failures + 1;
        logger.warn('a server ended', { from: name, reason: message });
      }
      // What its client subscribed to goes on.
      if (isOurs && planned && this.#set.size > 0) this.#start().catch(() => {});
      this.#serve();
    });
    for (const { method, params } of this.#set.values())
      await peer.request(method, params).catch(() => undefined);
    return peer;
  }
}
