/**
 * Who is who: a session is its id, a token that any process can open. Where what it holds is long, the id
 * only names a record in the store.
 */
import { randomUUID } from 'node:crypto';
import { keepNewest } from '../../src/call/bounded.ts';
import type { Client } from '../../src/call/journal.ts';
import { isObject, type JsonObject } from '../../src/call/json.ts';
import { AwaitError } from '../../src/error.ts';
import type { Services } from '../services.ts';
import { LEAST_LIFETIME, Session } from './session.ts';

/** Longest client description that goes into the id itself, in characters of JSON. */
const INLINE = 1_500;
/** How long a session may be served after it was ended in another process, in milliseconds. */
const CHECK_EVERY = 1_000;
/** Ended sessions remembered where no store does. */
const ENDED_KEPT = 10_000;

export class Sessions {
  readonly #services: Services;
  readonly #here = new Map<string, Session>();
  /** Ids that were ended where no store could tell the others. */
  readonly #ended = new Set<string>();
  readonly #timer: NodeJS.Timeout;

  constructor(services: Services) {
    this.#services = services;
    const { sessionIdle } = services.settings.limits;
    this.#timer = setInterval(() => this.#closeIdle(), Math.min(sessionIdle, 60_000));
    this.#timer.unref();
  }

  /** A new session, and the id its client gets. */
  async create(
    client: Client,
    principal: string | undefined,
    revision = client.protocolVersion,
  ): Promise<Session> {
    const { sealer, store, settings, now } = this.#services;
    const expires = now() + Math.max(settings.ttl, LEAST_LIFETIME);
    const name = `${Math.ceil(expires).toString(36)}.${randomUUID()}`;
    const isOwn = revision === client.protocolVersion;
    const bound = { name, ...(principal !== undefined && { principal }), ...(!isOwn && { revision }) };
    const inline = store === undefined || JSON.stringify(client).length <= INLINE;
    if (!inline && !(await store.insert(`${name}:session`, client, expires))) {
      throw new AwaitError('store', 'a session of this name exists');
    }
    const id = sealer.seal('session', inline ? { ...bound, client } : bound, expires);
    return this.#keep(new Session(id, client, principal, name, revision, this.#services));
  }

  /** The session of an id, wherever it was made; undefined when it is unknown, expired, ended or another caller's. */
  async find(id: string, principal: string | undefined): Promise<Session | undefined> {
    const here = this.#here.get(id);
    if (here !== undefined) {
      if (here.principal !== principal || (await this.#endedElsewhere(here))) return undefined;
      here.used = this.#services.now();
      return here;
    }
    const body = await this.#open(id);
    if (body === undefined || body.principal !== principal) return undefined;
    const { store } = this.#services;
    if (await this.#isEnded(body)) return undefined;
    const client = body.client ?? (await store?.get(`${String(body.name)}:session`));
    if (!isObject(client)) return undefined;
    const known = client as unknown as Client;
    const revision = typeof body.revision === 'string' ? body.revision : known.protocolVersion;
    const name = String(body.name);
    return (
      this.#here.get(id) ?? this.#keep(new Session(id, known, principal, name, revision, this.#services))
    );
  }

  /** Ends a session here and, where there is a store, everywhere. */
  async end(session: Session): Promise<void> {
    this.#here.delete(session.id);
    session.close();
    const body = await this.#open(session.id);
    const { store, now } = this.#services;
    if (body !== undefined) await store?.insert(`${String(body.name)}:ended`, true, now() + LEAST_LIFETIME);
    if (store !== undefined) return;
    this.#ended.add(session.id);
    keepNewest(this.#ended, ENDED_KEPT);
  }

  /** What another process ended, this one learns of with the next request, or the first after a second. */
  async #endedElsewhere(session: Session): Promise<boolean> {
    const { store, now } = this.#services;
    if (store === undefined || now() - session.checked < CHECK_EVERY) return false;
    session.checked = now();
    const body = await this.#open(session.id);
    if (body !== undefined && !(await this.#isEnded(body))) return false;
    this.#here.delete(session.id);
    session.close();
    return true;
  }

  async #isEnded(body: JsonObject): Promise<boolean> {
    return (await this.#services.store?.get(`${String(body.name)}:ended`)) !== undefined;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const session of this.#here.values()) session.leave();
    this.#here.clear();
  }

  #keep(session: Session): Session {
    this.#here.set(session.id, session);
    const { sessions } = this.#services.settings.limits;
    for (const [id, oldest] of this.#here) {
      if (this.#here.size <= sessions) break;
      if (oldest !== session) this.#letGo(id, oldest);
    }
    return session;
  }

  #closeIdle(): void {
    const before = this.#services.now() - this.#services.settings.limits.sessionIdle;
    for (const [id, session] of this.#here) if (session.used <= before) this.#letGo(id, session);
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

  async #open(id: string): Promise<JsonObject | undefined> {
    if (this.#ended.has(id)) return undefined;
    try {
      return await this.#services.sealer.open('session', id);
    } catch (error) {
      this.#services.settings.logger.debug('a session id is refused', {
        error: AwaitError.from(error).message,
      });
      return undefined;
    }
  }
}
