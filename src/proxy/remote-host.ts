/** `remoteHost`: a server elsewhere, by its URL. */

import { boundedResponse } from '../base/bounded-response.ts';
import type { OpenAccount } from '../base/budget.ts';
import { defined, type JsonObject, LoopTurns, optionError } from '../base/values.ts';
import type { Rpc } from '../client/message.ts';
import type { Listener } from '../client/modern/listener.ts';
import type { FactoryContext } from '../host/host.ts';
import type { EraWay } from './era.ts';
import { type LinkParts, type PeerHost, type PeerHostOptions, peerHost } from './host.ts';
import type { PeerLogger } from './link.ts';
import { type Listening, type ListeningPorts, listenerOf, type MayRead, type ModernWire } from './modern.ts';
import { openModernRemote, openModernWire } from './modern-wires.ts';
import { type BoundReply, RemoteLink, type RemoteOptions } from './remote.ts';

/** Bytes of one message of a remote server, as of one line of a child. */
const MESSAGE_BYTES = 16_777_216;

/** The options of `remoteHost`. */
export interface RemoteHostOptions extends RemoteOptions, PeerHostOptions {
  /**
   * Whether the server is sent `Authorization: Bearer`, with the `authInfo.token` of the caller, and no other: a
   * caller's connections are its own. For a proxy that serves the server's own public URL. Default false.
   */
  readonly forwardAuthorization?: boolean;
}

/**
 * A remote server of any revision, for `createAwaitHandler`. One of 2025-11-25 or before gets a session of its own for
 * each session here, or for each known caller without sessions, and needs the package `@modelcontextprotocol/sdk`.
 *
 * @throws AwaitError `bad-option`
 *
 * @example
 * import { createAwaitHandler, remoteHost } from 'mcp-await';
 *
 * const handler = createAwaitHandler(remoteHost({ url: 'https://example.com/mcp' }));
 */
export function remoteHost(options: RemoteHostOptions): PeerHost {
  return watchedRemoteHost(options, () => {});
}

/** @param refused called with each token that the server answers with 401 */
export function watchedRemoteHost(
  options: RemoteHostOptions,
  refused: (token: string | undefined) => void,
): PeerHost {
  const { url, headers, forwardAuthorization = false, ...host } = options;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw optionError(`remoteHost needs an http or https URL, not ${JSON.stringify(url)}`);
  }
  if (forwardAuthorization && Object.keys(headers ?? {}).some((name) => /^authorization$/i.test(name))) {
    throw optionError(
      'forwardAuthorization sends each caller’s own token: leave out the option, or the header Authorization',
    );
  }
  const remote: RemoteOptions = { url, ...defined({ headers }) };
  const remoteFor = (token: string | undefined): RemoteOptions => ({
    url,
    headers: { ...headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) },
  });
  const turns = new LoopTurns();
  const boundFor =
    (account: OpenAccount, token: string | undefined): BoundReply =>
    (response, reading) => {
      if (response.status === 401) refused(token);
      return boundedResponse(response, MESSAGE_BYTES, {
        ...reading,
        mayRead: async () => {
          await reading.mayRead?.();
          await turns.next();
        },
        account,
      });
    };
  const listeners = new SharedListeners();
  const waysOf = ({ logger, listens, caller, token, account }: LinkParts): readonly EraWay[] => {
    const own = remoteFor(token);
    const bound = boundFor(account, token);
    const listening =
      caller === undefined
        ? undefined
        : (ports: ListeningPorts): Listening =>
            listeners.join(JSON.stringify([caller, token]), logger, ports, (mayRead) =>
              openModernWire(own, logger, bound, mayRead),
            );
    return [
      ['2026-07-28', (events) => openModernRemote(own, logger, listens, account, events, bound, listening)],
      ['2025-11-25', (events) => new RemoteLink(own, bound, account, events)],
    ];
  };
  const identity = { ...remote, ...(forwardAuthorization && { forwardAuthorization }) };
  return peerHost(new URL(url).host, host, identity, waysOf, forwardAuthorization ? callersToken : undefined);
}

/** What a header can hold. */
const TOKEN = /^[\x21-\x7e]+$/;

/** A known caller without a token must not become an anonymous one. */
function callersToken({ authInfo, principal }: FactoryContext): { readonly token?: string } | 'missing' {
  const { token } = authInfo ?? {};
  // An error for a header that cannot be sent would have the token in it.
  if (typeof token === 'string' && TOKEN.test(token)) return { token };
  return principal === undefined ? {} : 'missing';
}

// --- listening for several clients ---

/**
 * One `subscriptions/listen` at a remote server of 2026-07-28 for all links of one known caller in this process: those
 * of its sessions, and of its servers without a session.
 * 1. Its filter is what any of them wants. A list that changed is for each link that listens; an update of a resource
 *    for those that subscribed to it, or to what it is a part of.
 * 2. It has a connection of its own, so it outlasts the link that opened it. The last link that leaves ends it.
 */

type OpenWire = (mayRead: MayRead) => ModernWire;

class SharedListeners {
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
    this.listener = listenerOf({
      open: (request, signal, hear) =>
        wire.open({ ...request, params: { ...request.params, _meta: envelope() } }, signal, hear),
      deliver: (message) => {
        for (const member of this.members) if (member.hears(message)) member.deliver(message);
      },
      logger,
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
