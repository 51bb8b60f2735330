/**
 * The streams of GETs that this process knows. A channel owns the messages that this process puts on its stream, and the
 * calls whose outcomes go there.
 */

import type { Quota, QuotaKey } from '../../src/base/quota.ts';
import { defined, isObject, type JsonObject, keepNewest } from '../../src/base/values.ts';
import type { Started } from '../../src/call/engine.ts';
import type { Client, Kept } from '../../src/call/journal/entries.ts';
import type { AbortSignalLike } from '../../src/call/ports.ts';
import type { Services } from '../../src/handler/services.ts';
import { expiryOf, sharedId } from '../../src/stream/event-id.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import { cancelElsewhere, noteRequest } from '../cancellation.ts';
import { LEAST_LIFETIME } from '../session/identity.ts';
import { SessionStream } from '../session/stream.ts';
import { nameOf } from './listeners.ts';
import { eventOf } from './wire.ts';

/** Ids of requests that are remembered of one stream, where no store does: of 500 streams of strangers, some 30 MB. */
const IDS_KEPT = 1_000;
/** Characters of their digests: 72 bits. V8 would keep the whole digest behind a part of more than twelve. */
const ID_LENGTH = 12;

/** The owner of a stream, and whose share it counts in. */
export interface StreamOwner extends QuotaKey {
  readonly workspace: string;
}

/** The scope of a stream's records, which another caller's scope never equals. */
export function scopeOf({ principal, workspace }: StreamOwner, id: string): string {
  return nameOf('get', principal, workspace, id);
}

/** The prefix of a stream's other records; it begins with the stream's expiry, for the sweeper. */
function recordsOf(id: string, scope: string): string {
  return `${id.slice(0, id.indexOf('.'))}.${scope}`;
}

/** The record that a GET's stream was opened, and by which owner. */
export function openedName(id: string, scope: string): string {
  return `${recordsOf(id, scope)}:opened`;
}

export class WorkspaceChannel {
  readonly id: string;
  readonly scope: string;
  readonly owner: StreamOwner;
  /** By the client's request id, for its cancellations. */
  readonly calls = new Map<string | number, Started>();
  used: number;
  readonly #services: Services;
  /** The prefix of its records other than events; as the scope, it is this owner's alone. */
  readonly #name: string;
  readonly #ids = new Set<string>();
  #client: Client | undefined;
  #connections = 0;

  constructor(services: Services, owner: StreamOwner, id: string) {
    this.id = id;
    this.owner = owner;
    this.scope = scopeOf(owner, id);
    this.#name = recordsOf(id, this.scope);
    this.used = services.now();
    this.#services = services;
  }

  get expires(): number {
    return expiryOf(this.id);
  }

  get connected(): boolean {
    return this.#connections > 0;
  }

  /** @returns a function to call once, when the connection closes */
  connect(): () => void {
    this.#connections += 1;
    return () => {
      this.#connections -= 1;
      this.used = this.#services.now();
    };
  }

  /** Written before its client gets the id: an id without this record is refused. */
  async opened(): Promise<void> {
    await this.#services.store?.insert(openedName(this.id, this.scope), true, this.expires, {
      holder: this.#holder,
    });
    await this.#services.listStream(this.owner.principal, this.id, this.scope);
  }

  /** Registers a call whose outcome goes here, and that its client may cancel. */
  keep(requestId: string | number, started: Started): void {
    this.calls.set(requestId, started);
    noteRequest(this.#services, this.#name, requestId, started, this.expires);
    void started.outcome.then(() => {
      if (this.calls.get(requestId) === started) this.calls.delete(requestId);
    });
  }

  /** Cancels a request of its client that does not run here. */
  cancelElsewhere(requestId: string | number): void {
    cancelElsewhere(this.#services, this.#name, requestId, this.owner.principal);
  }

  /** @returns whether it is in the store */
  event(event: StreamEvent): Promise<boolean> {
    return this.#stream().event(event);
  }

  /** Names a call in it. @throws AwaitError */
  refer(callId: string, requestId: string | number): Promise<void> {
    return this.#stream().refer(callId, requestId);
  }

  /** @returns whether it is in the store */
  respond(message: JsonObject): Promise<boolean> {
    return this.event(eventOf(message, true));
  }

  /** It is not used here any more. */
  release(): void {
    this.#services.store?.release(this.#name);
  }

  get #holder(): Kept {
    return { id: this.#name, expires: this.expires, ...defined({ principal: this.owner.principal }) };
  }

  /** Takes a request's id for as long as the stream lives; false when it was used on it. */
  async reserve(id: string | number): Promise<boolean> {
    const name = nameOf(JSON.stringify(id));
    const { store } = this.#services;
    if (store?.isShared) {
      return store.insert(`${this.#name}:id:${name}`, crypto.randomUUID(), this.expires, {
        holder: this.#holder,
      });
    }
    const short = name.slice(0, ID_LENGTH);
    if (this.calls.has(id) || this.#ids.has(short)) return false;
    this.#ids.add(short);
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
    return new SessionStream(
      this.#services.streams.shared(this.id, this.scope, { isLasting: true, owner: this.owner.principal }),
      this.#services,
    );
  }
}

interface OwnCall {
  readonly owner: StreamOwner;
  readonly requestId: string | number;
  readonly started: Started;
  /** Fires when its client has left the body. */
  readonly signal: AbortSignalLike;
  used: number;
}

const NOBODY = 'nobody listens any more';

export class Channels {
  readonly #services: Services;
  /** By their scopes. */
  readonly #here = new Map<string, WorkspaceChannel>();
  /** The same, the least recently used first. Those without a connection make room, each in its own share. */
  readonly #room: Quota<WorkspaceChannel>;
  /** Calls whose replies are their POSTs' own bodies, and when a client was there last. */
  readonly #own = new Set<OwnCall>();
  readonly #timer: NodeJS.Timeout;

  constructor(services: Services, room: Quota<WorkspaceChannel>) {
    this.#services = services;
    this.#room = room;
    this.#timer = setInterval(
      () => this.#closeIdle(),
      Math.min(services.settings.limits.sessionIdle, 60_000),
    );
    this.#timer.unref();
  }

  make(owner: StreamOwner): WorkspaceChannel {
    const { settings, now } = this.#services;
    // It lives as long as its client may listen.
    const id = sharedId(now() + Math.max(settings.ttl, LEAST_LIFETIME));
    // The process that reads it says so in it, for the processes that append to it.
    return this.#keep(new WorkspaceChannel(this.#services, owner, id));
  }

  /** A stream of this owner's, wherever it was made. */
  of(owner: StreamOwner, id: string): WorkspaceChannel {
    const scope = scopeOf(owner, id);
    return this.#keep(this.#here.get(scope) ?? new WorkspaceChannel(this.#services, owner, id));
  }

  /** A call whose reply is its POST's own body. */
  keepOwn(call: Omit<OwnCall, 'used'>): void {
    const { started } = call;
    const own = { ...call, used: this.#services.now() };
    this.#own.add(own);
    void started.outcome.then(() => this.#own.delete(own));
  }

  /** The running calls of an owner with a request id. */
  inWork({ principal, workspace }: StreamOwner, requestId: string | number): Started[] {
    const isOwners = ({ owner }: { readonly owner: StreamOwner }): boolean =>
      owner.principal === principal && owner.workspace === workspace;
    const own = [...this.#own].filter((call) => isOwners(call) && call.requestId === requestId);
    const onStreams = [...this.#here.values()].filter(isOwners).map(({ calls }) => calls.get(requestId));
    return [...own.map(({ started }) => started), ...onStreams.filter((call) => call !== undefined)];
  }

  close(): void {
    clearInterval(this.#timer);
    this.#here.clear();
  }

  #keep(channel: WorkspaceChannel): WorkspaceChannel {
    channel.used = this.#services.now();
    this.#here.set(channel.scope, channel);
    this.#room.leave(channel);
    const { owner } = channel;
    this.#room.makeRoom(
      owner,
      1,
      (unused) => this.#letGo(unused),
      (one) => this.#mayGo(one),
    );
    this.#room.hold(channel, owner);
    return channel;
  }

  #closeIdle(): void {
    const before = this.#services.now() - this.#services.settings.limits.sessionIdle;
    for (const channel of this.#here.values())
      if (channel.used <= before && this.#mayGo(channel)) this.#letGo(channel);
    for (const call of this.#own) {
      const isThere = !call.signal.aborted || this.#services.replies.get(call.started.callId) !== undefined;
      if (isThere) call.used = this.#services.now();
      else if (call.used <= before && !this.#mayListenElsewhere(call)) call.started.cancel(NOBODY);
    }
  }

  #mayListenElsewhere({ used }: { readonly used: number }): boolean {
    const { settings, store, now } = this.#services;
    return store?.isShared === true && now() - used <= settings.ttl;
  }

  /** Whether a channel has no connection here, and its client is not likely to be connected to another process. */
  #mayGo(channel: WorkspaceChannel): boolean {
    return !channel.connected && !(channel.calls.size > 0 && this.#mayListenElsewhere(channel));
  }

  #letGo(channel: WorkspaceChannel): void {
    const { settings, store, streams } = this.#services;
    this.#here.delete(channel.scope);
    this.#room.leave(channel);
    channel.release();
    for (const call of channel.calls.values()) call.cancel(NOBODY);
    // Records in a shared store stay, for other processes.
    if (store?.isShared) streams.leave(channel.id, channel.scope);
    else {
      void streams.remove(channel.id, channel.scope).catch((error: unknown) => {
        settings.logger.warn('a stream could not be deleted; it stays until it expires', {
          error,
        });
      });
    }
  }
}
