/** `remoteHost`: a server elsewhere, by its URL. */

import { boundedResponse } from '../base/bounded-response.ts';
import type { OpenAccount } from '../base/budget.ts';
import { AwaitError, LoopTurns } from '../base/values.ts';
import type { FactoryContext } from '../host/host.ts';
import type { EraWay } from './era.ts';
import { type LinkParts, type PeerHost, type PeerHostOptions, peerHost } from './host.ts';
import type { Listening, ListeningPorts } from './modern.ts';
import { openModernRemote, openModernWire } from './modern-wires.ts';
import { type BoundReply, openRemote, type RemoteOptions } from './remote.ts';
import { SharedListeners } from './shared-listening.ts';

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
    throw new AwaitError('bad-option', `remoteHost needs an http or https URL, not ${JSON.stringify(url)}`);
  }
  if (forwardAuthorization && Object.keys(headers ?? {}).some((name) => /^authorization$/i.test(name))) {
    throw new AwaitError(
      'bad-option',
      'forwardAuthorization sends each caller’s own token: leave out the header Authorization, or forwardAuthorization',
    );
  }
  const remote: RemoteOptions = { url, ...(headers !== undefined && { headers }) };
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
      ['2025-11-25', (events) => openRemote(own, bound, account, events)],
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
