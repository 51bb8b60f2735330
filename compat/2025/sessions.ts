/** The sessions that this process serves: who is let in, and what is let go. */
import { keepNewest } from '../../src/call/bounded.ts';
import type { Client } from '../../src/call/journal.ts';
import { AwaitError } from '../../src/error.ts';
import type { Services } from '../services.ts';
import { LEAST_LIFETIME } from './identity.ts';
import { Session } from './session.ts';

/** How often sessions are looked at that nobody asks for: whether they are idle, or over; milliseconds. */
const LOOK_EVERY = 10_000;
/** Ended sessions remembered where no store does. */
const ENDED_KEPT = 10_000;

/** What the id of a session stands for. */
export interface Identity {
  /** Begins with when it is over; its records stand under it. */
  readonly name: string;
  readonly principal: string | undefined;
  /** What it negotiated. */
  readonly revision: string;
  /** Undefined as long as its client has not said who it is. */
  readonly client: Client | undefined;
}

/** Reads an id; undefined when it is none, expired, unknown or another caller's. */
export type Identify = (id: string, principal: string | undefined) => Promise<Identity | undefined>;

export class Sessions {
  readonly #services: Services;
  readonly #identify: Identify;
  readonly #here = new Map<string, Session>();
  /** Ids that were ended where no store could tell the others. */
  readonly #ended = new Set<string>();
  readonly #timer: NodeJS.Timeout;
  #looking = false;

  constructor(services: Services, identify: Identify) {
    this.#services = services;
    this.#identify = identify;
    const { sessionIdle } = services.settings.limits;
    this.#timer = setInterval(() => void this.#look(), Math.min(sessionIdle, LOOK_EVERY));
    this.#timer.unref();
  }

  /** A session of this process. */
  add(id: string, identity: Identity): Session {
    const session = new Session(id, identity, this.#services);
    this.#here.set(id, session);
    const { sessions } = this.#services.settings.limits;
    for (const [other, oldest] of this.#here) {
      if (this.#here.size <= sessions) break;
      if (oldest !== session) this.#letGo(other, oldest);
    }
    return session;
  }

  /** The session of an id, wherever it was made; undefined when it is unknown, expired, ended or another caller's. */
  async find(id: string, principal: string | undefined): Promise<Session | undefined> {
    const here = this.#here.get(id);
    if (here !== undefined) {
      if (here.principal !== principal || (await this.#isOver(here))) return undefined;
      here.used = this.#services.now();
      return here;
    }
    if (this.#ended.has(id)) return undefined;
    const identity = await this.#identify(id, principal);
    if (identity === undefined || (await this.#isEnded(identity.name))) return undefined;
    return this.#here.get(id) ?? this.add(id, identity);
  }

  /** Ends a session here and, where there is a store, everywhere. */
  async end(session: Session): Promise<void> {
    this.#here.delete(session.id);
    session.close();
    const { store, now } = this.#services;
    await store?.insert(`${session.name}:ended`, true, now() + LEAST_LIFETIME);
    if (store !== undefined) return;
    this.#ended.add(session.id);
    keepNewest(this.#ended, ENDED_KEPT);
  }

  /** What another process ended, this one learns of with the next request. */
  async #isOver(session: Session): Promise<boolean> {
    if (session.expires > this.#services.now() && !(await this.#isEnded(session.name))) return false;
    this.#here.delete(session.id);
    session.close();
    return true;
  }

  async #isEnded(name: string): Promise<boolean> {
    return (await this.#services.store?.get(`${name}:ended`)) !== undefined;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const session of this.#here.values()) session.leave(true);
    this.#here.clear();
  }

  async #look(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    try {
      const before = this.#services.now() - this.#services.settings.limits.sessionIdle;
      for (const [id, session] of this.#here) {
        if (session.used <= before) this.#letGo(id, session);
        // Ended in another process, it has connections or calls here that nobody wants any more.
        else if (session.connected || session.busy) await this.#isOver(session);
      }
    } catch (error) {
      this.#services.settings.logger.warn('the store cannot say whether a session was ended', {
        error: AwaitError.from(error, 'store').message,
      });
    } finally {
      this.#looking = false;
    }
  }

  /** What nobody listens to here goes, unless its client may be listening in another process. */
  #letGo(id: string, session: Session): void {
    if (session.connected) return;
    const { settings, store, now } = this.#services;
    const isShared = store?.isShared === true;
    if (isShared && session.busy && now() - session.used <= settings.ttl) return;
    this.#here.delete(id);
    // Its streams are everybody's, and stay.
    if (isShared && !session.busy) session.leave();
    else session.close();
  }
}
