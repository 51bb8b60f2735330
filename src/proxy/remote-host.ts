/** `remoteHost`: a server elsewhere, by its URL. */

import { boundedResponse } from '../base/bounded-response.ts';
import { Budget } from '../base/budget.ts';
import { AwaitError } from '../base/error.ts';
import { type PeerHost, type PeerHostOptions, peerHost } from './host.ts';
import { openModernRemote, openModernWire } from './modern-wires.ts';
import { type BoundReply, openRemote, type RemoteOptions } from './remote.ts';
import { SharedListeners } from './shared-listening.ts';

/** Bytes of one message of a remote server, as of one line of a child. */
const MESSAGE_BYTES = 16_777_216;
/** Bytes of all its messages that are not whole; half of them for all anonymous callers, or for one that is known. */
const RECEIVED_BYTES = 134_217_728;

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
  const received = new Budget(RECEIVED_BYTES);
  const boundFor =
    (principal: string | undefined): BoundReply =>
    (response, onExceeded) =>
      boundedResponse(response, MESSAGE_BYTES, onExceeded, (breakOff) =>
        received.open({ principal }, breakOff),
      );
  const listeners = new SharedListeners((logger, caller) => openModernWire(remote, logger, boundFor(caller)));
  return peerHost(new URL(url).host, host, remote, (logger, listens, caller) => [
    [
      '2026-07-28',
      (events) =>
        openModernRemote(
          remote,
          logger,
          listens,
          events,
          boundFor(caller),
          caller === undefined ? undefined : (ports) => listeners.join(caller, logger, ports),
        ),
    ],
    ['2025-11-25', (events) => openRemote(remote, boundFor(caller), events)],
  ]);
}
