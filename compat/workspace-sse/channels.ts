/**
 * The streams of this process: those of GETs, and those of POSTs whose own body became one. A channel owns the messages
 * that this process puts on its stream, and the calls whose outcomes go there.
 */

import { randomUUID } from 'node:crypto';
import { keepNewest } from '../../src/base/bounded.ts';
import { isObject, type JsonObject } from '../../src/base/json.ts';
import type { Started } from '../../src/call/engine.ts';
import type { Client, Kept } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere } from '../../src/call/run/wire-error.ts';
import { expiryOf, sharedId } from '../../src/stream/event-id.ts';
import { cancelElsewhere, noteRequest } from '../cancellation.ts';
import type { Services } from '../services.ts';
import { CallList } from '../session/call-list.ts';
import { tellListed } from '../session/follow.ts';
import { LEAST_LIFETIME } from '../session/identity.ts';
import { SessionStream } from '../session/stream.ts';
import { nameOf } from './listeners.ts';
import { notificationEvent, responseEvent } from './wire.ts';

/** Ids of requests that are remembered of one stream, where no store does. */
const IDS_KEPT = 10_000;

/** The owner of a stream. */
export interface Owner {
  readonly principal: string | undefined;
  readonly workspace: string;
}

/** A GET's stream, or a POST's own body, which ends with its response. */
export type Kind = 'get' | 'post';

/** The scope of a stream's records, which another caller's scope never equals. */
export function scopeOf({ principal, workspace }: Owner, id: string, kind: Kind): string {
  return nameOf(kind, principal, workspace, id);
}

/** The prefix of a stream's other records; it begins with the stream's expiry, for the sweeper. */
function recordsOf(id: string, scope: string): string {
  return `${id.slice(0, id.indexOf('.'))}.${scope}`;
}

/** The record that a GET's stream was opened, and by which owner. */
export function openedName(id: string, scope: string): string {
  return `${recordsOf(id, scope)}:opened`;
}

export class Channel {
  readonly id: string;
  readonly scope: string;
  readonly owner: Owner;
  readonly kind: Kind;
  /** Its calls, for the process to which the client returns; undefined where processes share no store. */
  readonly list: CallList | undefined;
  /** By the client's request id, for its cancellations. */
  readonly calls = new Map<string | number, Started>();
  used: number;
  readonly #services: Services;
  readonly #isNew: boolean;
  /** The prefix of its records other than events; as the scope, it is this owner's alone. */
  readonly #name: string;
  readonly #ids = new Set<string>();
  #client: Client | undefined;
  #connections = 0;

  constructor(services: Services, owner: Owner, id: string, kind: Kind, isNew: boolean) {
    this.id = id;
    this.owner = owner;
    this.kind = kind;
    this.scope = scopeOf(owner, id, kind);
    this.#name = recordsOf(id, this.scope);
    this.used = services.now();
    this.#services = services;
    this.#isNew = isNew;
    this.list = CallList.of(services, this.#name, this.expires);
  }

  get expires(): number {
    return expiryOf(this.id);
  }

  get connected(): boolean {
    return this.#connections > 0;
  }

  /** @returns a function to call when the connection closes */
  connect(): () => void {
    this.#connections += 1;
    let isThere = true;
    return () => {
      if (!isThere) return;
      isThere = false;
      this.#connections -= 1;
      this.used = this.#services.now();
    };
  }

  /** Written before its client gets the id: an id without this record is refused. */
  async opened(): Promise<void> {
    await this.#services.store?.insert(openedName(this.id, this.scope), true, this.expires);
    await this.#services.listStream(this.owner.principal, this.id, this.scope);
  }

  /** Registers a call whose outcome goes here, and that its client may cancel. */
  keep(requestId: string | number, started: Started): void {
    this.calls.set(requestId, started);
    // On a POST's own body, only a disconnect cancels the call, so no record is needed.
    if (this.kind === 'get') noteRequest(this.#services, this.#name, requestId, started, this.expires);
    void started.outcome.then(() => {
      if (this.calls.get(requestId) === started) this.calls.delete(requestId);
    });
  }

  /** Cancels a request of its client that does not run here. */
  cancelElsewhere(requestId: string | number): void {
    cancelElsewhere(this.#services, this.#name, requestId, this.owner.principal);
  }

  /** Sends a message of the server before its response. */
  say(message: JsonObject): void {
    void this.#stream().event(notificationEvent(message));
  }

  /** @param listed the call's id, where it is listed */
  async tell(id: string | number, outcome: Outcome, listed?: string): Promise<void> {
    if (listed !== undefined && goesOnElsewhere(outcome)) return;
    // A POST's own body ends with its response; a GET's stream does not, so its list records sent outcomes.
    const list = this.kind === 'get' ? this.list : undefined;
    await tellListed(list, listed, outcome, (response) => this.respond({ jsonrpc: '2.0', id, ...response }));
  }

  /** @returns whether it is in the store */
  respond(message: JsonObject): Promise<boolean> {
    return this.#stream().event(responseEvent(message), this.kind === 'post');
  }

  /** It is not used here any more. */
  release(): void {
    this.#services.store?.release(this.#name);
  }

  get #holder(): Kept {
    const { principal } = this.owner;
    return { id: this.#name, expires: this.expires, ...(principal !== undefined && { principal }) };
  }

  /** A request gets no response. */
  unanswered(): void {
    if (this.kind === 'post') this.#stream().finish();
  }

  /** Takes a request's id for as long as the stream lives; false when it was used on it. */
  async reserve(id: string | number): Promise<boolean> {
    const name = nameOf(JSON.stringify(id));
    const { store } = this.#services;
    if (store?.isShared) return store.insert(`${this.#name}:id:${name}`, randomUUID(), this.expires);
    if (this.#ids.has(name)) return false;
    this.#ids.add(name);
    keepNewest(this.#ids, IDS_KEPT);
    return true;
  }

  /** The client of its `initialize`, sent to any process. */
  async client(): Promise<Client | undefined> {
    const { store } = this.#services;
    if (store?.isShared !== true) return this.#client;
    const found = await store.get(`${this.#name}:client`);
    return isObject(found) ? (found as unknown as Client) : undefined;
  }

  async introduce(client: Client): Promise<void> {
    this.#client = client;
    const { store } = this.#services;
    if (store?.isShared) await store.replace(`${this.#name}:client`, client, this.expires, this.#holder);
  }

  #stream(): SessionStream {
    this.used = this.#services.now();
    const how = { isNew: this.#isNew, isLasting: this.kind === 'get', owner: this.owner.principal };
    return new SessionStream(this.#services.streams.shared(this.id, this.scope, how), this.#services);
  }
}

export class Channels {
  readonly #services: Services;
  /** By their scopes. */
  readonly #here = new Map<string, Channel>();
  readonly #timer: NodeJS.Timeout;

  constructor(services: Services) {
    this.#services = services;
    const { sessionIdle } = services.settings.limits;
    this.#timer = setInterval(() => this.#closeIdle(), Math.min(sessionIdle, 60_000));
    this.#timer.unref();
  }

  make(owner: Owner, kind: Kind): Channel {
    const { settings, now } = this.#services;
    // A POST's own body holds the messages of its one call, and lives no longer; a GET's stream lives as long as its
    // client may listen.
    const life = kind === 'post' ? settings.ttl : Math.max(settings.ttl, LEAST_LIFETIME);
    const id = sharedId(now() + life);
    // The process that reads a GET's stream says so in it, for the processes that append to it.
    return this.#keep(new Channel(this.#services, owner, id, kind, kind === 'post'));
  }

  /** A stream of this owner's, wherever it was made. */
  of(owner: Owner, id: string, kind: Kind): Channel {
    const scope = scopeOf(owner, id, kind);
    const channel = this.#here.get(scope) ?? new Channel(this.#services, owner, id, kind, false);
    // Reinserted, so that the least recently used are first.
    this.#here.delete(scope);
    return this.#keep(channel);
  }

  /** The running calls of an owner with a request id. */
  inWork({ principal, workspace }: Owner, requestId: string | number): Started[] {
    const started: Started[] = [];
    for (const { owner, calls } of this.#here.values()) {
      const call = owner.principal === principal && owner.workspace === workspace && calls.get(requestId);
      if (call) started.push(call);
    }
    return started;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#here.clear();
  }

  #keep(channel: Channel): Channel {
    channel.used = this.#services.now();
    this.#here.set(channel.scope, channel);
    for (const oldest of this.#here.values()) {
      if (this.#here.size <= this.#services.settings.limits.sessions) break;
      if (oldest !== channel) this.#letGo(oldest);
    }
    return channel;
  }

  #closeIdle(): void {
    const before = this.#services.now() - this.#services.settings.limits.sessionIdle;
    for (const channel of this.#here.values()) if (channel.used <= before) this.#letGo(channel);
  }

  /** Drops a channel without a connection here, unless its client may be connected to another process. */
  #letGo(channel: Channel): void {
    if (channel.connected) return;
    const { settings, store, now, streams } = this.#services;
    const isShared = store?.isShared === true;
    if (isShared && channel.calls.size > 0 && now() - channel.used <= settings.ttl) return;
    this.#here.delete(channel.scope);
    channel.release();
    for (const call of channel.calls.values()) call.cancel('nobody listens any more');
    // Records in a shared store stay, for other processes.
    if (isShared) streams.leave(channel.id, channel.scope);
    else {
      void streams.remove(channel.id, channel.scope).catch((error: unknown) => {
        settings.logger.warn('a stream could not be deleted; it stays until it expires', {
          error: String(error),
        });
      });
    }
  }
}
