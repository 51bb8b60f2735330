/**
 * Identity: the stream opens before its client has named itself, so a session is a random id, and its facts (the
 * caller, later the client) are records in the store.
 */

import { AwaitError, isObject } from '../../src/base/values.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import type { Services } from '../../src/handler/services.ts';
import { standingId } from '../../src/stream/event-id.ts';
import type { Identify, SessionIdentity } from '../session/identity.ts';
import { expiryOf, holderOf, newName } from '../session/identity.ts';
import type { Session } from '../session/session.ts';

const REVISION = '2024-11-05';

const NAME = /^[0-9a-z]{1,11}\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A new session, whose client is unknown yet. */
export async function createIdentity(
  services: Services,
  principal: string | undefined,
): Promise<SessionIdentity> {
  const name = newName(services);
  const bound = principal === undefined ? {} : { principal };
  if (
    (await services.store?.insert(`${name}:opened`, bound, expiryOf(name), {
      holder: holderOf(name, principal),
    })) === false
  ) {
    throw new AwaitError('store', 'a session of this name exists');
  }
  // All messages of the session go over its one stream.
  await services.listStream(principal, standingId(name, expiryOf(name)), name);
  return { name, principal, revision: REVISION, client: undefined };
}

/** Without a store a session is known to its own process alone, for as long as that keeps it. */
export function identifier({ store, now }: Services): Identify {
  return async (id, principal) => {
    if (store === undefined || !NAME.test(id) || !(expiryOf(id) >= now())) return undefined;
    const opened = await store.get(`${id}:opened`).catch(unlessForeign);
    if (!isObject(opened) || opened.principal !== principal) return undefined;
    return { name: id, principal, revision: REVISION, client: undefined };
  };
}

/** A session of another service on this store is an unknown one. */
function unlessForeign(error: unknown): undefined {
  if (AwaitError.from(error).code !== 'bad-token') throw error;
}

/**
 * Keeps who a session's client is, for all processes.
 * @returns false when it is known already: there is one `initialize`
 */
export async function keepClient({ store }: Services, session: Session, client: Client): Promise<boolean> {
  if (session.isKnown) return false;
  if (
    (await store?.insert(clientKey(session), client, session.expires, { holder: session.holder })) === false
  )
    return false;
  session.introduce(client);
  return true;
}

/** Takes that back: the server did not take the client. */
export async function forgetClient({ store }: Services, session: Session): Promise<void> {
  session.introduce(undefined);
  await store?.remove(clientKey(session));
}

/** Lets a session know its client, where that introduced itself at another process. */
export async function recallClient({ store }: Services, session: Session): Promise<void> {
  if (session.isKnown) return;
  const client = await store?.get(clientKey(session));
  if (isObject(client)) session.introduce(client as unknown as Client);
}

function clientKey({ name }: Session): string {
  return `${name}:client`;
}
