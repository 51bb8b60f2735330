/**
 * The default name of a caller: it stays the same over the life of a call, while bearer tokens are renewed. Issuer and
 * subject are read from `authInfo.extra`, else from the token if it is a JWT, which the middleware that set `authInfo`
 * has verified. An opaque token does not name its user, so its keyed digest is the name, and the logger warns once what
 * that costs. Two users of one OAuth client must never be one caller: the client's id is a name only where there is no
 * token.
 */
import { createHmac, type KeyObject } from 'node:crypto';
import { isObject, type JsonObject, objectOf } from '../../base/values.ts';

export type Principal = (authInfo: JsonObject | undefined) => string | undefined;

/** Longest token whose claims are read, in characters. */
const LONGEST = 65_536;

const WARNING =
  'bearer tokens are opaque, and authInfo.extra names no subject (sub, subject or userId): with a new token a caller loses its calls. Set the option principal: (authInfo) => the user’s stable name';

/**
 * @param key of the digests of opaque tokens; asked for with each, since secrets may change
 * @param warn called once
 */
export function defaultPrincipal(key: () => KeyObject, warn: (message: string) => void): Principal {
  let hasWarned = false;
  return (authInfo) => {
    if (authInfo === undefined) return undefined;
    const { clientId, token } = authInfo;
    const extra = objectOf(authInfo.extra);
    const claims = claimsOf(token);
    const issuer = extra.iss ?? extra.issuer ?? claims.iss;
    const subject = extra.sub ?? extra.subject ?? extra.userId ?? claims.sub;
    if (subject === undefined && typeof token === 'string' && token !== '') {
      if (!hasWarned) warn(WARNING);
      hasWarned = true;
      const digest = createHmac('sha256', key()).update(token).digest('base64url');
      return JSON.stringify([issuer ?? null, { token: digest }, clientId ?? null]);
    }
    const parts = [issuer, subject, clientId];
    return parts.every((part) => part === undefined)
      ? undefined
      : JSON.stringify(parts.map((part) => part ?? null));
  };
}

/** The claims of a JWT (RFC 7519); empty for other tokens and for a JWT without a subject. */
function claimsOf(token: unknown): JsonObject {
  if (typeof token !== 'string' || token.length > LONGEST) return {};
  const [, payload, signature, more] = token.split('.', 4);
  if (payload === undefined || signature === undefined || more !== undefined) return {};
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString());
    return isObject(claims) && typeof claims.sub === 'string' && claims.sub !== '' ? claims : {};
  } catch {
    return {};
  }
}
