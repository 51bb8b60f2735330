/**
 * A session is its id: a token that any process can open. Long content is in a record of the store, which the id names.
 */
import { AwaitError, defined, isObject, type JsonObject } from '../../src/base/values.ts';
import { newCallId } from '../../src/call/engine.ts';
import type { Client, Kept } from '../../src/call/journal/entries.ts';
import type { Services } from '../../src/handler/services.ts';

/** The facts of a session, read from its id. */
export interface SessionIdentity {
  /** Begins with the session's expiry; its records have this prefix. */
  readonly name: string;
  readonly principal: string | undefined;
  /** The negotiated revision. */
  readonly revision: string;
  /** Undefined until its client has sent `initialize`. */
  readonly client: Client | undefined;
}

/** Reads an id; undefined if it is malformed, expired, unknown or another caller's. */
export type Identify = (id: string, principal: string | undefined) => Promise<SessionIdentity | undefined>;

/** Sessions and their streams outlive the calls in them; milliseconds. */
export const LEAST_LIFETIME = 86_400_000;
/** Longest client description that goes into the id itself, in characters of JSON. */
const INLINE = 1_500;

/** A name for a session that begins now; it contains the session's expiry. */
export function newName({ settings, now }: Services): string {
  const expires = now() + Math.max(settings.ttl, LEAST_LIFETIME);
  return newCallId(expires);
}

/** When a session of this name is over, in milliseconds since the epoch. */
export function expiryOf(name: string): number {
  return Number.parseInt(name.slice(0, name.indexOf('.')), 36);
}

/** A new session, and the id its client gets. */
export async function createIdentity(
  services: Services,
  client: Client,
  principal: string | undefined,
  revision = client.protocolVersion,
): Promise<{ readonly id: string; readonly identity: SessionIdentity }> {
  const { sealer, store } = services;
  const name = newName(services);
  const expires = expiryOf(name);
  const bound = {
    name,
    ...defined({ principal }),
    ...(revision !== client.protocolVersion && { revision }),
  };
  const inline = store === undefined || JSON.stringify(client).length <= INLINE;
  const holder = holderOf(name, principal);
  if (!inline && !(await store.insert(`${name}:session`, client, expires, { holder }))) {
    throw new AwaitError('store', 'a session of this name exists');
  }
  const id = sealer.seal('session', inline ? { ...bound, client } : bound, expires);
  return { id, identity: { name, principal, revision, client } };
}

/** Whose bytes the records of a session count with. */
export function holderOf(name: string, principal: string | undefined): Kept {
  return { id: name, expires: expiryOf(name), ...defined({ principal }) };
}

export function identifier(services: Services): Identify {
  return async (id, principal) => {
    const body = await opened(services, id);
    if (body === undefined || body.principal !== principal) return undefined;
    const name = String(body.name);
    const client = body.client ?? (await services.store?.get(`${name}:session`));
    if (!isObject(client)) return undefined;
    const known = client as unknown as Client;
    return {
      name,
      principal,
      revision: typeof body.revision === 'string' ? body.revision : known.protocolVersion,
      client: known,
    };
  };
}

async function opened({ sealer, settings }: Services, id: string): Promise<JsonObject | undefined> {
  try {
    return await sealer.open('session', id);
  } catch (error) {
    settings.logger.warn('a session id is refused', { error: AwaitError.from(error).message });
    return undefined;
  }
}
