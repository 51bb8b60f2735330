/**
 * One `subscriptions/listen` at a remote server of 2026-07-28 for all links of one known caller in this process: those
 * of its sessions, and of its servers without a session.
 * 1. Its filter is what any of them wants. A list that changed is for each link that listens; an update of a resource
 *    for those that subscribed to it, or to what it is a part of.
 * 2. It has a connection of its own, so it outlasts the link that opened it. The last link that leaves ends it.
 */
import type { JsonObject } from '../base/values.ts';
import { RECONNECTION, type Rpc } from '../client/message.ts';
import { Listener } from '../client/modern/listener.ts';
import type { PeerLogger } from './link.ts';
import type { Listening, ListeningPorts, MayRead, ModernWire } from './modern.ts';

type OpenWire = (mayRead: MayRead) => ModernWire;

export class SharedListeners {
  readonly #byCaller = new Map<string, SharedListener>();

  /**
   * @param caller a name of the caller, and of the token that the server is sent
   * @param open the connection, where the caller has none
   */
  join(caller: string, logger: PeerLogger, ports: ListeningPorts, open: OpenWire): Listening {
    const shared =
      this.#byCaller.get(caller) ??
      new SharedListener(open, logger, ports.envelope, () => this.#byCaller.delete(caller));
    this.#byCaller.set(caller, shared);
    return new SharingLink(shared, ports);
  }
}

class SharedListener {
  readonly listener: Listener;
  readonly members = new Set<SharingLink>();
  readonly #closed = new AbortController();
  readonly #wire: ModernWire;
  readonly #onEmpty: () => void;

  constructor(open: OpenWire, logger: PeerLogger, envelope: () => JsonObject, onEmpty: () => void) {
    // As fast as the slowest of them takes it.
    const wire = open(() => Promise.all([...this.members].map(({ mayRead }) => mayRead())));
    this.#wire = wire;
    this.#onEmpty = onEmpty;
    this.listener = new Listener({
      open: (request, signal, hear) =>
        wire.open({ ...request, params: { ...request.params, _meta: envelope() } }, signal, hear),
      deliver: (message) => {
        for (const member of this.members) if (member.hears(message)) member.deliver(message);
      },
      report: ({ message }) => logger.debug('a subscription broke', { error: message }),
      reconnection: { ...RECONNECTION, maxRetries: Infinity },
      closed: this.#closed.signal,
    });
  }

  wants(uri: string): boolean {
    return [...this.members].some(({ uris }) => uris.has(uri));
  }

  leave(member: SharingLink): void {
    if (!this.members.delete(member)) return;
    if (this.members.size > 0) {
      const unwanted = [...member.uris].filter((uri) => !this.wants(uri));
      void this.listener.unsubscribe(...unwanted).catch(() => {});
      return;
    }
    this.listener.close();
    this.#closed.abort();
    this.#wire.kill();
    this.#onEmpty();
  }
}

class SharingLink implements Listening {
  readonly uris = new Set<string>();
  readonly deliver: (message: Rpc) => void;
  readonly mayRead: MayRead;
  readonly #shared: SharedListener;
  #listens = false;

  constructor(shared: SharedListener, { deliver, mayRead }: Pick<ListeningPorts, 'deliver' | 'mayRead'>) {
    this.#shared = shared;
    this.deliver = deliver;
    this.mayRead = mayRead;
    shared.members.add(this);
  }

  get declared(): JsonObject {
    return this.#shared.listener.declared;
  }

  set declared(capabilities: JsonObject) {
    this.#shared.listener.declared = capabilities;
  }

  hears(message: Rpc): boolean {
    if (!('method' in message) || message.method !== 'notifications/resources/updated') return this.#listens;
    const { uri } = message.params ?? {};
    return typeof uri === 'string' && [...this.uris].some((own) => uri.startsWith(own));
  }

  start(): void {
    const isFirst = ![...this.#shared.members].some((member) => member.#listens);
    this.#listens = true;
    if (isFirst) this.#shared.listener.start();
  }

  async subscribe(uri: string): Promise<void> {
    if (!this.#shared.wants(uri)) await this.#shared.listener.subscribe(uri);
    this.uris.add(uri);
  }

  async unsubscribe(uri: string): Promise<void> {
    this.uris.delete(uri);
    if (!this.#shared.wants(uri)) await this.#shared.listener.unsubscribe(uri);
  }

  close(): void {
    this.#shared.leave(this);
  }
}
