/**
 * Data behind the engine's token in a state, sealed and bound to it: any process can read it, no record is stored for
 * it, and an altered one makes the state invalid.
 */

import { digest } from '../../src/base/digest.ts';
import { AwaitError, isObject, type JsonObject } from '../../src/base/values.ts';
import type { Services } from '../../src/handler/services.ts';

/** No character of a token. */
const BETWEEN = '~';

/** Most that notifications may make a state longer by, in characters of JSON. */
const LONGEST = 16_384;

export interface Rider {
  /** Of the request that this state is the reply to, where its retry needs another one (SEP-2322). */
  readonly id?: string | number;
  /** The session that the id is of: in another one it means nothing. */
  readonly session?: string;
  /**
   * Notifications that the client has not got yet, where an incomplete response cannot be a stream (the first draft).
   */
  readonly said?: readonly JsonObject[];
}

/** The state of a call: its token with the data behind it. If notifications are too long, the newest are kept. */
export function stateOf(
  { sealer, settings, now }: Services,
  token: string,
  { id, session, said = [] }: Rider,
): string {
  const kept = newest(said);
  if (id === undefined && kept.length === 0) return token;
  const body = {
    of: digest(token),
    ...(id !== undefined && { id, session }),
    ...(kept.length > 0 && { said: kept }),
  };
  return `${token}${BETWEEN}${sealer.seal('retry', body, now() + settings.ttl)}`;
}

/**
 * @param needed whether a state without a rider is invalid
 * @returns the engine's token, and the rider
 * @throws AwaitError `bad-token`
 */
export async function splitState(
  { sealer }: Services,
  state: unknown,
  needed: boolean,
): Promise<Rider & { readonly token: unknown }> {
  const [token = '', sealed, ...more] = typeof state === 'string' ? state.split(BETWEEN) : [];
  if (sealed === undefined && !needed) return { token: state };
  if (sealed === undefined || more.length > 0) {
    throw new AwaitError('bad-token', 'it is not a state of this draft');
  }
  const { of, id, session, said } = await sealer.open('retry', sealed);
  if (of !== digest(token)) throw new AwaitError('bad-token', 'the data behind it belongs to another state');
  return {
    token,
    ...((typeof id === 'string' || typeof id === 'number') && { id }),
    ...(typeof session === 'string' && { session }),
    ...(Array.isArray(said) && { said: said.filter(isObject) }),
  };
}

function newest(said: readonly JsonObject[]): readonly JsonObject[] {
  let room = LONGEST;
  const tooOld = said.findLastIndex((one) => {
    room -= JSON.stringify(one).length;
    return room < 0;
  });
  return said.slice(tooOld + 1);
}
