/** Verifies the JWT of a login: who opens the page of an ask, and who calls. */
import type { IncomingMessage } from 'node:http';
import { createRemoteJWKSet, errors, type JWTPayload, jwtVerify } from 'jose';
import { AwaitError, type JsonObject } from '../base/values.ts';
import type { Logger } from '../observe/logger.ts';

/** Signatures by a private key: with a shared secret, whoever can verify a token can make one. */
const ALGORITHMS = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
];
/** Codes of `jose` for a key set that could not be read: then nothing is known of the token. */
const UNREAD: readonly string[] = ['ERR_JOSE_GENERIC', 'ERR_JWKS_TIMEOUT', 'ERR_JWKS_INVALID'];
const BEARER = /^bearer +/i;

export interface SignedCallerParts {
  readonly jwks: URL;
  readonly issuer: string;
  /** Of the tokens of browsers, and of those of MCP requests: a token for both is refused. */
  readonly audience: string;
  readonly callers: string;
  /** The header of a request to the page. */
  readonly header: string;
  readonly logger: Pick<Logger, 'warn' | 'error'>;
}

/** What is read of a verified token. */
type Claims = JWTPayload & { readonly sub: string };

export class SignedCaller {
  readonly #parts: SignedCallerParts;
  readonly #keys: ReturnType<typeof createRemoteJWKSet>;

  constructor(parts: SignedCallerParts) {
    this.#parts = parts;
    this.#keys = createRemoteJWKSet(parts.jwks);
  }

  /** `authorize` of the page: the subject of the request's token. */
  readonly authorize = async (request: Request): Promise<string | undefined> => {
    const token = request.headers.get(this.#parts.header)?.replace(BEARER, '');
    return token === undefined ? undefined : (await this.#claimsOf(token, 'audience'))?.sub;
  };

  /** `person` of a caller, as `authenticate` named it. */
  readonly person = (authInfo: JsonObject | undefined): string | undefined => {
    const { sub } = (authInfo?.extra ?? {}) as { readonly sub?: string };
    return sub;
  };

  /**
   * The `authInfo` of an MCP request; undefined for one without a bearer token, which is anonymous.
   * @throws AwaitError `bad-token` for a token that is not valid; `internal` where the keys cannot be read
   */
  readonly authenticate = async ({ headers }: IncomingMessage): Promise<JsonObject | undefined> => {
    const { authorization = '' } = headers;
    if (!BEARER.test(authorization)) return undefined;
    const token = authorization.replace(BEARER, '');
    const claims = await this.#claimsOf(token, 'callers');
    if (claims === undefined) throw new AwaitError('bad-token', 'the bearer token of a request is not valid');
    const { iss, sub, exp, client_id: client, azp } = claims;
    const clientId = [client, azp].find((one) => typeof one === 'string') ?? '';
    return { token, clientId, scopes: [], expiresAt: exp, extra: { iss, sub } };
  };

  async #claimsOf(token: string, whose: 'audience' | 'callers'): Promise<Claims | undefined> {
    const { issuer, logger } = this.#parts;
    const other = this.#parts[whose === 'audience' ? 'callers' : 'audience'];
    try {
      const { payload } = await jwtVerify(token, this.#keys, {
        issuer,
        audience: this.#parts[whose],
        algorithms: ALGORITHMS,
        // A token without an end is good for as long as its key.
        requiredClaims: ['sub', 'exp'],
      });
      const { sub, aud } = payload;
      if ([aud].flat().includes(other)) return undefined;
      return typeof sub === 'string' && sub !== '' ? { ...payload, sub } : undefined;
    } catch (error) {
      if (error instanceof errors.JOSEError && !UNREAD.includes(error.code)) {
        logger.warn('a token was refused', { code: error.code, reason: error.message });
        return undefined;
      }
      logger.error('the keys of --ask-jwks cannot be read', { error: String(error) });
      throw new AwaitError('internal', 'the keys of --ask-jwks cannot be read', error);
    }
  }
}
