/** How a session begins: its client's declaration, and the server's instance for it. */

import { withoutIcons } from '../../src/base/description.ts';
import { isObject, type JsonObject } from '../../src/base/values.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import type { Inbound } from '../../src/doors/http/exchange.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Outside } from '../../src/host/router.ts';
import { LATEST, SPOKEN } from '../../src/host/spoken.ts';
import type { Session } from './session.ts';

export const NO_CLIENT = 'initialize needs protocolVersion, capabilities and clientInfo';
export const NOT_TAKEN = 'the server does not take these capabilities, or this clientInfo';

/**
 * The client of an `initialize`, with the revision that it gets: its own if that is served, else the latest.
 * @param served the revisions of this handler
 * @returns undefined if required members are missing
 */
export function clientOf(
  { protocolVersion, capabilities, clientInfo }: JsonObject,
  served: ReadonlySet<string>,
): Client | undefined {
  if (typeof protocolVersion !== 'string' || !isObject(capabilities) || !isObject(clientInfo))
    return undefined;
  const revisions = [...served].filter((revision) => SPOKEN.has(revision)).sort();
  return {
    capabilities,
    info: withoutIcons(clientInfo),
    protocolVersion: revisions.includes(protocolVersion) ? protocolVersion : (revisions.at(-1) ?? LATEST),
  };
}

/**
 * An instance of the user's server for a session, in this process.
 *
 * @param begins whether the session begins with it
 */
export function openInstance(
  services: Services,
  session: Session,
  inbound: Inbound,
  outside: Outside,
  begins = false,
): Promise<HostInstance> {
  const { client, principal } = session;
  return services.instances.open({
    id: session.id,
    era: 'legacy',
    revision: client.protocolVersion,
    client,
    principal,
    authInfo: inbound.authInfo,
    request: () => inbound.request(),
    sessionId: session.id,
    // Where it cannot be asked at once, roots go out with the first tool.
    serves: begins && !session.can('asks-in-responses') ? 'session' : 'joined',
    outside,
  });
}
