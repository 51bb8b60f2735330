/** How a revision opens an instance of the user's server: of its own, or one that is kept for its caller or the process. */
import { digest } from '../base/digest.ts';
import type { JsonObject } from '../base/values.ts';
import type { Client } from '../call/journal/entries.ts';
import { type ContextParts, contextOf, type HostFactory } from '../host/host.ts';
import { type HostInstance, type InstanceOptions, LiveInstance } from '../host/instance.ts';
import { KeptInstances } from '../host/kept.ts';
import type { Outside } from '../host/router.ts';
import type { HeapWatch } from '../observe/load.ts';
import type { Settings } from './settings.ts';

/** The facts for which an instance is opened. */
export interface Opening extends ContextParts {
  /** The session's id, the call's, or the request's: servers keep state in maps by it. */
  readonly id: string;
  /**
   * `call`: one call alone; `request`: one that cannot ask; `session`: one that begins with it; `joined`: one that
   * began in another process.
   */
  readonly serves: 'call' | 'request' | 'session' | 'joined';
  readonly outside: Outside;
}

export interface Instances {
  open(opening: Opening): Promise<HostInstance>;
  /** Ends those that are kept. */
  close(): void;
}

interface InstanceParts {
  /** What the server is told of a client. */
  believed(client: Client, principal: string | undefined, authInfo: JsonObject | undefined): Client;
  onOpen(instance: HostInstance): void;
  readonly heap: HeapWatch;
  runsOn: InstanceOptions['runsOn'];
}

export function createInstances(
  factory: HostFactory,
  settings: Settings,
  { believed, onOpen, heap, runsOn }: InstanceParts,
): Instances {
  const { instance: scope, limits, steps } = settings;
  const kept = new KeptInstances({
    idle: scope === 'process' ? undefined : limits.sessionIdle,
    most: limits.sessions,
  });
  const fresh = (opening: Opening, outside: Outside, isKept: boolean): Promise<LiveInstance> => {
    heap.check(opening.principal);
    const { id, serves, outside: _own, ...parts } = opening;
    const { client } = parts;
    return LiveInstance.open({
      factory,
      client,
      context: contextOf(isKept ? keptParts(scope, parts) : parts),
      sessionId: isKept ? `kept.${crypto.randomUUID()}` : id,
      single: !isKept && (serves === 'call' || serves === 'request'),
      joins: serves !== 'session',
      // Requests that cannot ask are spared the price of one.
      contexts: steps && (isKept || serves !== 'request'),
      outside,
      runsOn,
      principal: isKept ? undefined : opening.principal,
    });
  };
  const open: Instances['open'] = (opening) => {
    const { principal: caller } = opening;
    const isCallers = scope === 'caller' && caller !== undefined;
    // Anonymous callers share only the process's.
    const owner = scope === 'process' ? ['process'] : isCallers && ['caller', caller];
    if (!owner) return fresh(opening, opening.outside, false);
    const { era, revision, client, workspace, isLocal, outside, serves, principal } = opening;
    const { capabilities, info } = client;
    const key = digest([owner, era, revision, capabilities, info, workspace, isLocal === true]);
    const isCall = serves === 'call';
    return kept.lease(key, { outside, isCall, principal }, (shared) => fresh(opening, shared, true));
  };
  return {
    open: (opening) =>
      open({ ...opening, client: believed(opening.client, opening.principal, opening.authInfo) }).then(
        (instance) => {
          onOpen(instance);
          return instance;
        },
      ),
    close: () => kept.close(),
  };
}

/**
 * The facts about the client that a shared server's factory gets: none of one request or session, and for `process`
 * none of the caller.
 */
function keptParts(
  scope: Settings['instance'],
  { sessionId, request, ...parts }: ContextParts,
): ContextParts {
  if (scope === 'caller') return parts;
  const { principal, authInfo, ...anybody } = parts;
  return anybody;
}
