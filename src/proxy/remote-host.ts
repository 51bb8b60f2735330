/** `remoteHost`: a server elsewhere, by its URL. */

import { AwaitError } from '../base/error.ts';
import { type PeerHost, type PeerHostOptions, peerHost } from './host.ts';
import { openModernRemote, openModernWire } from './modern-wires.ts';
import { openRemote, type RemoteOptions } from './remote.ts';
import { SharedListeners } from './shared-listening.ts';

/** The options of `remoteHost`. */
export interface RemoteHostOptions extends RemoteOptions, PeerHostOptions {}

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
  const { url, headers, ...host } = options;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new AwaitError('bad-option', `remoteHost needs an http or https URL, not ${JSON.stringify(url)}`);
  }
  const remote: RemoteOptions = { url, ...(headers !== undefined && { headers }) };
  const listeners = new SharedListeners((logger) => openModernWire(remote, logger));
  return peerHost(new URL(url).host, host, remote, (logger, listens, caller) => [
    [
      '2026-07-28',
      (events) =>
        openModernRemote(
          remote,
          logger,
          listens,
          events,
          caller === undefined ? undefined : (ports) => listeners.join(caller, logger, ports),
        ),
    ],
    ['2025-11-25', (events) => openRemote(remote, events)],
  ]);
}
