/**
 * The server's own notifications (`subscriptions/listen`): one stream for all subscriptions of `Client`.
 * A stream's filter cannot be changed. So a subscription opens a new stream, and the old one closes once the server has
 * acknowledged the new: nothing is missed in between, and duplicates are notifications without content.
 */

import { ACKNOWLEDGED, AwaitError, isObject, type JsonObject, objectOf } from '../../base/values.ts';
import { Attempts, asError, type ClientRequest, type Reconnection, type Rpc } from '../message.ts';
import type { Opened } from '../round-trips/round-trips.ts';

export interface ListenerPorts {
  open(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened>;
  readonly deliver: (message: Rpc) => void;
  readonly report: (error: Error) => void;
  readonly reconnection: Reconnection;
  readonly closed: AbortSignal;
}

/** A stream, from its request to its end. */
interface Stream {
  readonly stop: AbortController;
  /** The notifications that the server granted. Rejects without a stream. */
  readonly acknowledged: Promise<JsonObject>;
}

const LISTS = ['tools', 'prompts', 'resources'];

export class Listener {
  /** The server's declared capabilities. */
  declared: JsonObject = {};
  readonly #ports: ListenerPorts;
  readonly #uris = new Set<string>();
  #stream: Stream | undefined;
  #opened = 0;
  /** Changes of the filter, one after the other. */
  #changes: Promise<unknown> = Promise.resolve();

  constructor(ports: ListenerPorts) {
    this.#ports = ports;
  }

  /** Subscribes to changed lists, if the server announces them. */
  start(): void {
    this.#change(() => this.#replace()).catch((thrown) => this.#report(thrown));
  }

  /** Throws an AwaitError (`capability`) where the server has no subscriptions. */
  subscribe(uri: string): Promise<void> {
    return this.#change(async () => {
      this.#uris.add(uri);
      const honored = await this.#replace();
      const uris = honored?.resourceSubscriptions;
      if (Array.isArray(uris) && uris.includes(uri)) return;
      this.#uris.delete(uri);
      throw new AwaitError('capability', `The server refuses subscriptions to ${uri}.`);
    });
  }

  unsubscribe(...uris: readonly string[]): Promise<void> {
    return this.#change(async () => {
      if (uris.filter((uri) => this.#uris.delete(uri)).length > 0) await this.#replace();
    });
  }

  close(): void {
    this.#stream?.stop.abort();
  }

  #change(doing: () => Promise<unknown>): Promise<void> {
    const changed = this.#changes.then(doing).then(() => undefined);
    this.#changes = changed.catch(() => {});
    return changed;
  }

  get #filter(): JsonObject {
    const lists = LISTS.filter((list) => {
      const has = this.declared[list];
      return isObject(has) && has.listChanged === true;
    });
    return {
      ...Object.fromEntries(lists.map((list) => [`${list}ListChanged`, true])),
      ...(this.#uris.size > 0 && { resourceSubscriptions: [...this.#uris] }),
    };
  }

  /** The notifications that the new stream will send; undefined if none are wanted. */
  async #replace(): Promise<JsonObject | undefined> {
    const before = this.#stream;
    this.#stream = undefined;
    try {
      const filter = this.#filter;
      if (Object.keys(filter).length === 0 || this.#ports.closed.aborted) return undefined;
      this.#stream = this.#listen(filter);
      return await this.#stream.acknowledged;
    } finally {
      before?.stop.abort();
    }
  }

  #listen(notifications: JsonObject): Stream {
    const stop = new AbortController();
    const acknowledged = new Promise<JsonObject>((resolve, reject) => {
      void this.#follow(notifications, stop.signal, resolve).then(
        () => reject(new AwaitError('stream', 'The server ended a subscription without acknowledging it.')),
        reject,
      );
    });
    return { stop, acknowledged };
  }

  /** Opens the stream again when it breaks, until it is left. */
  async #follow(
    notifications: JsonObject,
    signal: AbortSignal,
    onAcknowledged: (honored: JsonObject) => void,
  ): Promise<void> {
    const attempts = new Attempts(this.#ports.reconnection, signal);
    let wasHeard = false;
    do {
      try {
        const isOver = await this.#once(notifications, signal, (honored) => {
          wasHeard = true;
          attempts.reset();
          onAcknowledged(honored);
        });
        if (isOver) return;
      } catch (thrown) {
        if (signal.aborted) return;
        if (!wasHeard) throw thrown;
        this.#report(thrown);
      }
    } while (await attempts.next());
  }

  /** Whether there is nothing more to hear. */
  async #once(
    notifications: JsonObject,
    signal: AbortSignal,
    onAcknowledged: (honored: JsonObject) => void,
  ): Promise<boolean> {
    this.#opened += 1;
    let isHonored = false;
    const request: ClientRequest = {
      jsonrpc: '2.0',
      id: `listen~${this.#opened}`,
      method: 'subscriptions/listen',
      params: { notifications },
    };
    const { answer } = await this.#ports.open(request, signal, (message) => {
      if (!('method' in message) || message.method !== ACKNOWLEDGED) return this.#ports.deliver(message);
      const said: unknown = message.params?.notifications;
      const honored = objectOf(said);
      isHonored = Object.keys(honored).length > 0;
      onAcknowledged(honored);
    });
    const ended = await answer;
    if ('error' in ended) throw new AwaitError('stream', `No subscription: ${ended.error.message}`);
    return !isHonored;
  }

  #report(thrown: unknown): void {
    if (!this.#ports.closed.aborted) this.#ports.report(asError(thrown));
  }
}
