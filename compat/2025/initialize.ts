/** How a session begins: what its client says of itself, and the server's instance for it. */
import type { Client } from '../../src/call/journal.ts';
import { isObject, type JsonObject } from '../../src/call/json.ts';
import { HostInstance, type Outside } from '../../src/host/instance.ts';
import type { Inbound } from '../../src/http/exchange.ts';
import type { Services } from '../services.ts';
import type { Session } from './session.ts';

/** What a host speaks to a client of a draft, when no other revision is served. */
const LATEST = '2025-11-25';

export const NO_CLIENT = 'initialize needs protocolVersion, capabilities and clientInfo';
export const NOT_TAKEN = 'the server does not take these capabilities, or this clientInfo';

/**
 * The client of an `initialize`, with the revision that it gets: its own where that is served, else the latest.
 *
 * @param served the revisions of this handler
 * @param spoken those of this wire, of which the latest is taken
 * @returns undefined when it says too little of itself
 */
export function clientOf(
  { protocolVersion, capabilities, clientInfo }: JsonObject,
  served: ReadonlySet<string>,
  spoken: ReadonlySet<string>,
): Client | undefined {
  if (typeof protocolVersion !== 'string' || !isObject(capabilities) || !isObject(clientInfo))
    return undefined;
  const revisions = [...served].filter((revision) => spoken.has(revision)).sort();
  return {
    capabilities,
    info: clientInfo,
    protocolVersion: revisions.includes(protocolVersion) ? protocolVersion : (revisions.at(-1) ?? LATEST),
  };
}

/** An instance of the user's server for a session, in this process. */
export function openInstance(
  services: Services,
  session: Session,
  inbound: Inbound,
  outside: Outside,
): Promise<HostInstance> {
  const { factory, settings } = services;
  const { client } = session;
  return HostInstance.open({
    factory,
    client,
    context: {
      era: 'legacy',
      revision: client.protocolVersion,
      ...(inbound.authInfo !== undefined && { authInfo: inbound.authInfo }),
      requestInfo: inbound.request(),
      clientCapabilities: client.capabilities,
      clientInfo: client.info,
    },
    sessionId: session.id,
    single: false,
    contexts: settings.steps,
    outside,
  });
}
