/**
 * The state that a session's server instances share in all processes: the client's settings (a log level,
 * subscriptions), and its tools' changes to the server's own lists. The requests that set it, and the calls that
 * changed a list, are appended beside the session with the store's insert-if-absent; each process applies those it has
 * not seen to its own instance before it serves the session again. Such a call is replayed, not run: its tool gets its
 * recorded answers and steps, and new effects do not happen.
 */
import {
  AwaitError,
  isObject,
  type JsonObject,
  keepNewest,
  objectOf,
  Subscriptions,
} from '../../src/base/values.ts';
import type { Frame } from '../../src/call/frame/frame.ts';
import { type Kept, readCheckpoint } from '../../src/call/journal/entries.ts';
import { lastOf } from '../../src/call/task/index.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance, SentRequest } from '../../src/host/instance.ts';
import type { Message } from '../../src/host/transport.ts';
import type { RpcRequest } from './start.ts';

const SETS_STATE = /^(logging\/setLevel|resources\/(un)?subscribe)$/;
/** The notification on which servers ask their client for state that they keep. */
const TELLS_STATE = 'notifications/roots/list_changed';
/** More than that many changes are a client's mistake. */
const MOST = 10_000;
/** Most records that are read at once. */
const AHEAD = 64;
/** Most running calls with a changed list; beyond it the oldest one's notification is dropped. */
const CHANGING = 200;

/** The next records of a session, as the store has them. */
export interface News {
  readonly at: number;
  readonly entry: unknown;
}

export class SessionState {
  readonly #services: Services;
  readonly #name: string;
  readonly #holder: Kept;
  /** The resources that its client subscribed to, up to that position. */
  readonly #uris = new Subscriptions();
  /** The position up to which this process's instance knows it. */
  #at = 0;
  /** The last position that is known to be taken. */
  #end = 0;
  /** A client's notification that is about to be stored: it stands for those that come until then. */
  #telling: Promise<void> | undefined;
  #last: Promise<void> = Promise.resolve();
  /** Operations that wait, or run. */
  #working = 0;
  /** Running calls whose tools changed a list, with the notifications of that. */
  readonly #changes = new Map<Frame, Message[]>();
  /** Frames of replayed calls, whose notifications went out where the call ran. */
  readonly #rehearsed = new WeakSet<Frame>();

  /** @param holder whose bytes its records count with */
  constructor(services: Services, name: string, holder: Kept) {
    this.#services = services;
    this.#name = name;
    this.#holder = holder;
  }

  get #isShared(): boolean {
    return this.#services.store?.isShared === true;
  }

  /** The record that this process's instance has not seen yet. */
  get next(): { readonly at: number; readonly name: string } {
    const at = this.#at + 1;
    return { at, name: this.#key(at) };
  }

  /**
   * Whether this process's instance has all changes.
   * @param news records that were read as the request came
   */
  isCurrent(news?: News): boolean {
    if (!this.#isShared) return true;
    return this.#working === 0 && news?.at === this.#at + 1 && news.entry === undefined;
  }

  /** Applies the changes of other processes to this one's instance. */
  catchUp(instance: HostInstance, news?: News): Promise<void> {
    return this.#inOrder(() => this.#catchUp(instance, news));
  }

  /** @throws AwaitError `limit` for a subscription for which there is no room */
  check({ method, params }: RpcRequest): void {
    if (method === 'resources/subscribe' && !this.#uris.hasRoomFor(String(params.uri)))
      throw new AwaitError('limit', 'the subscriptions of a session are too long');
  }

  /** A request that this process's instance answered, for the others. */
  record(instance: HostInstance, method: string, params: JsonObject): Promise<void> | undefined {
    if (!SETS_STATE.test(method)) return undefined;
    if (this.#isShared) return this.#append(instance, { method, params });
    setUri(this.#uris, { method, params });
    return undefined;
  }

  /** Whether its client is subscribed to a resource, at whichever process it did that. */
  async subscribes(uri: string): Promise<boolean> {
    const uris = new Subscriptions();
    if (this.#uris.has(uri)) uris.add(uri);
    if (this.#isShared) for await (const entry of this.#news()) setUri(uris, entry);
    return uris.has(uri);
  }

  /**
   * Stores a client's notification for the instances of other processes; this process's instance has it already.
   * @param instance undefined where this process has none
   */
  async notified(instance: HostInstance | undefined, method: string): Promise<void> {
    if (method !== TELLS_STATE || !this.#isShared) return;
    this.#telling ??= this.#append(instance, { method });
    await this.#telling;
  }

  /**
   * A tool changed one of its server's lists; its client is notified once every process can see the change.
   * @returns false if the notification may go out now
   */
  holds(message: Message, frame: Frame | undefined): boolean {
    if (frame === undefined || !message.method?.endsWith('/list_changed')) return false;
    if (this.#rehearsed.has(frame)) return true;
    if (!this.#isShared) return false;
    this.#changes.set(frame, [...(this.#changes.get(frame) ?? []), message]);
    keepNewest(this.#changes, CHANGING);
    return true;
  }

  /** Whether calls in work or ended changed a list, which `settle` has not stored. */
  get hasChanges(): boolean {
    return this.#changes.size > 0;
  }

  /** Stores ended calls that changed a list, for the other processes; then sends their notifications by `tell`. */
  async settle(instance: HostInstance, tell: (message: Message) => void): Promise<void> {
    for (const [frame, messages] of this.#changes) {
      if (!frame.over) continue;
      this.#changes.delete(frame);
      try {
        await this.#append(instance, { rehearse: frame.fold() });
      } finally {
        for (const message of messages) tell(message);
      }
    }
  }

  /** Runs one operation after the other, so that records written here are not applied here again. */
  #inOrder(work: () => Promise<void>): Promise<void> {
    this.#working += 1;
    this.#last = this.#last
      .catch(() => {})
      .then(work)
      .finally(() => {
        this.#working -= 1;
      });
    return this.#last;
  }

  /** Without an instance its entry is read back, by the one that this process makes if it is asked for. */
  #append(instance: HostInstance | undefined, entry: JsonObject): Promise<void> {
    return this.#inOrder(async () => {
      this.#telling = undefined;
      const { store } = this.#services;
      do {
        if (instance !== undefined) await this.#catchUp(instance);
        else
          this.#end = await lastOf(this.#end, async (at) => (await store?.get(this.#key(at))) !== undefined);
        if (this.#end >= MOST) return;
      } while (
        !(await store?.insert(this.#key(this.#end + 1), entry, this.#holder.expires, {
          holder: this.#holder,
        }))
      );
      this.#end += 1;
      if (instance === undefined) return;
      this.#at = this.#end;
      setUri(this.#uris, entry);
    });
  }

  async #catchUp(instance: HostInstance, news?: News): Promise<void> {
    // Of several changes of one setting, one subscription or one kind of notification the last one is enough.
    const last = new Map<unknown, SentRequest>();
    try {
      for await (const { method, params, rehearse } of this.#news(news)) {
        this.#at += 1;
        this.#end = this.#at;
        if (rehearse !== undefined) {
          await this.#rehearse(instance, rehearse);
          continue;
        }
        const change = {
          id: `mcp-await-state-${this.#at}`,
          method: String(method),
          params: objectOf(params),
        };
        setUri(this.#uris, change);
        last.set(change.params.uri ?? method, change);
      }
    } finally {
      for (const change of last.values()) {
        if (change.method === TELLS_STATE) instance.notify({ jsonrpc: '2.0', method: TELLS_STATE });
        // An error is ignored: the client got the same one where it sent the request.
        else await instance.request(change, {});
      }
    }
  }

  /** The records that this process's instance has not seen, a few at a time. */
  async *#news(news?: News): AsyncGenerator<JsonObject, void> {
    let at = this.#at;
    let found = news?.at === at + 1 ? [news.entry] : [];
    for (let ahead = 1; ; ahead = Math.min(2 * ahead, AHEAD)) {
      for (const entry of found) {
        if (entry === undefined) return;
        at += 1;
        // What cannot be read takes its position all the same: an append that finds it taken looks behind it.
        yield objectOf(entry);
      }
      found = (await this.#services.store?.getAll(this.#keys(at, ahead))) ?? [];
    }
  }

  async #rehearse(instance: HostInstance, checkpoint: unknown): Promise<void> {
    const { engine, settings } = this.#services;
    const read = readCheckpoint(checkpoint);
    const rehearsal = engine.rehearse(read, instance);
    if (rehearsal !== undefined) this.#rehearsed.add(rehearsal.frame);
    const error = rehearsal === undefined ? 'the option replay forbids it' : (await rehearsal.done)?.message;
    if (error === undefined) return;
    const about = { call: read.call.id, error };
    settings.logger.warn(
      'a call that changed a list cannot be replayed; this process lacks the change',
      about,
    );
  }

  /** The records up to the position that this process knows. */
  get records(): string[] {
    return this.#keys(0, this.#end);
  }

  #keys(after: number, count: number): string[] {
    return Array.from({ length: count }, (_, nth) => this.#key(after + nth + 1));
  }

  #key(at: number): string {
    return `${this.#name}:state:${at}`;
  }
}

function setUri(uris: Subscriptions, { method, params }: JsonObject): void {
  const uri = isObject(params) ? String(params.uri) : '';
  if (method === 'resources/subscribe' && uris.hasRoomFor(uri)) uris.add(uri);
  else if (method === 'resources/unsubscribe') uris.delete(uri);
}

/** If it cannot be shared with other processes, it stays in this one, and its client is served all the same. */
export async function remembered(services: Services, recorded: Promise<void> | undefined): Promise<void> {
  await recorded?.catch((error: unknown) => {
    services.settings.logger.warn('a change of a session could not be stored', { error });
  });
}
