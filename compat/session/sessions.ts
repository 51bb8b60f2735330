/**
 * The sessions that this process serves: admission and eviction. A session with a connection, or with a running or
 * suspended call, is never evicted: a new one is refused instead. Anonymous callers have a limit of their own, apart
 * from the known callers' (invariant 14).
 */

import { digest } from '../../src/base/digest.ts';
import { Quota, type QuotaKey } from '../../src/base/quota.ts';
import { AwaitError, keepNewest } from '../../src/base/values.ts';
import type { Services } from '../../src/handler/services.ts';
import type { Identify, SessionIdentity } from './identity.ts';
import { Session } from './session.ts';
import type { News } from './state.ts';

/** How often unused sessions are checked for their idle time and their end, in milliseconds. */
const LOOK_EVERY = 10_000;
/** Ended sessions that are remembered. */
const ENDED_KEPT = 10_000;

/** A session that a request is for. */
interface FoundSession {
  readonly session: Session;
  /** The records read together with the one that ends it. */
  readonly news?: News;
}

export class Sessions {
  readonly #services: Services;
  readonly #identify: Identify;
  readonly #here = new Map<string, Session>();
  /** The least recently used first. */
  readonly #room: Quota<Session>;
  /**
   * Digests of the ids that were ended here: the store may not have that yet, or the handler has none. A sealed id is as
   * long as its client's description.
   */
  readonly #ended = new Set<string>();
  readonly #timer: NodeJS.Timeout;
  #looking = false;

  constructor(services: Services, identify: Identify) {
    this.#services = services;
    this.#identify = identify;
    const {
      sessionIdle,
      sessions: all,
      callerSessions: caller,
      anonymousSessions,
    } = services.settings.limits;
    this.#room = new Quota({ all, caller, anonymous: anonymousSessions });
    this.#timer = setInterval(() => void this.#lookAround(), Math.min(sessionIdle, LOOK_EVERY));
    this.#timer.unref();
    services.heap.onFull.add(() => {
      // A session of one process is over then: that costs strangers alone. One that a request is about to use stays.
      const before = services.now() - LOOK_EVERY;
      for (const session of this.#here.values())
        if (
          !session.held &&
          session.used < before &&
          (services.store?.isShared === true || session.principal === undefined)
        )
          this.#letGo(session);
    });
  }

  /**
   * Lets idle sessions go until there is room for one more of this caller's, the least recently used one first: a session
   * whose client closed it goes before one that has just begun.
   * @throws AwaitError `no-room` when those that are in its place are not idle
   */
  makeRoom(quotaKey: QuotaKey): void {
    const lack = this.#room.makeRoom(
      quotaKey,
      1,
      (idle) => this.#letGo(idle),
      ({ held }) => !held,
    );
    if (lack === undefined) return;
    const whose = lack === 'caller' ? 'one caller' : `${lack} callers`;
    throw new AwaitError(
      'no-room',
      `a session was refused: the part of ${whose} of limits.sessions is in use, and none is idle`,
    );
  }

  /**
   * A session of this process.
   * @throws AwaitError `no-room`
   */
  add(id: string, identity: SessionIdentity, address: string | undefined): Session {
    const quotaKey = { principal: identity.principal, address };
    this.makeRoom(quotaKey);
    const session = new Session(id, identity, this.#services, address);
    this.#here.set(id, session);
    this.#room.hold(session, quotaKey);
    return session;
  }

  /**
   * The session of an id, wherever it was made; undefined when it is unknown, expired, ended or another caller's.
   * @throws AwaitError `no-room` where it is not in this process yet, and cannot be
   */
  async find(id: string, { principal, address }: QuotaKey): Promise<FoundSession | undefined> {
    const here = this.#here.get(id);
    if (here !== undefined) {
      if (here.principal !== principal) return undefined;
      here.used = this.#services.now();
      this.#room.leave(here);
      this.#room.hold(here, here);
      return this.#look(here);
    }
    if (this.wasEnded(id)) return undefined;
    const identity = await this.#identify(id, principal);
    if (identity === undefined || (await this.#services.store?.get(ended(identity.name))) !== undefined)
      return undefined;
    if (this.wasEnded(id)) return undefined;
    return { session: this.#here.get(id) ?? this.add(id, identity, address) };
  }

  /** Ends a session here and, where there is a store, everywhere. */
  async end(session: Session): Promise<void> {
    this.#close(session);
    const { store } = this.#services;
    const { name, holder, state } = session;
    const mark = ended(name);
    // A stranger's marks make room for one another too.
    await store?.insert(mark, true, session.expires, { holder: { ...holder, id: mark } });
    store?.release(mark);
    await store?.removeAll(name, `${name}:session`, `${name}:client`, `${name}:opened`, ...state.records);
  }

  /**
   * Reads other processes' changes to a session, in one read, with the next request.
   * @returns undefined once it has ended
   */
  async #look(session: Session): Promise<FoundSession | undefined> {
    const { store, now } = this.#services;
    if (session.expires > now()) {
      // Without a shared store the session was removed when it ended.
      if (store?.isShared !== true) return { session };
      const { at, name } = session.state.next;
      const [end, entry] = await store.getAll([ended(session.name), name]);
      if (end === undefined) return { session, news: { at, entry } };
    }
    this.#close(session);
    return undefined;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const session of this.#here.values()) session.leave(true);
    this.#here.clear();
  }

  async #lookAround(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    const { settings, now } = this.#services;
    try {
      const before = now() - settings.limits.sessionIdle;
      for (const session of [...this.#here.values()]) {
        if (session.used <= before) {
          // One with running calls stays for as long as calls may live: its client may be connected elsewhere.
          const isIdle = !session.busy || now() - session.used > settings.ttl;
          if (isIdle && !session.connected) this.#letGo(session);
        }
        // It was ended in another process: its connections and calls here are ended too.
        else if (session.connected || session.busy) await this.#look(session);
      }
    } catch (error) {
      settings.logger.warn('the store cannot say whether a session was ended', {
        error: AwaitError.from(error, 'store').message,
      });
    } finally {
      this.#looking = false;
    }
  }

  /** Whether a session of this id was ended, as far as this process remembers. */
  wasEnded(id: string | undefined): boolean {
    return id !== undefined && this.#ended.has(digest(id));
  }

  /** Marks it ended before it is removed, so that concurrent requests do not open it anew. */
  #close(session: Session): void {
    keepNewest(this.#ended.add(digest(session.id)), ENDED_KEPT);
    this.#forget(session);
    session.close();
  }

  #forget(session: Session): void {
    this.#here.delete(session.id);
    this.#room.leave(session);
  }

  #letGo(session: Session): void {
    this.#forget(session);
    this.#services.store?.release(session.name);
    // Its streams are in the store, for all processes, and stay.
    if (this.#services.store?.isShared === true && !session.busy) session.leave();
    else session.close();
  }
}

/** The record of a session's end. */
function ended(name: string): string {
  return `${name}:ended`;
}
