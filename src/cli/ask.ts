/** The flags of the page on which a person answers, as the option `ask` and what its server needs besides. */

import type { IncomingMessage } from 'node:http';
import { createRemoteJWKSet, customFetch, errors, type JWTPayload, jwtVerify } from 'jose';
import { checkAsk, isLoopbackUrl } from '../ask/options.ts';
import { boundedResponse } from '../base/bounded-response.ts';
import { AwaitError, badToken, type JsonObject, optionError, systemClock } from '../base/values.ts';
import { isLoopback } from '../doors/http/address.ts';
import { Paths } from '../doors/http/paths.ts';
import type { AwaitOptions } from '../handler/handler.ts';
import type { Logger } from '../observe/logger.ts';
import type { Draft } from './flags.ts';
import { LOCAL, Pairing } from './pairing.ts';

/** Paths that the server of the command line has, besides those of the handler. */
const TAKEN: readonly string[] = ['/mcp', '/healthz', '/readyz'];

export interface PageFlags {
  readonly options: Pick<AwaitOptions, 'ask' | 'principal'>;
  /** Whether a path is the page's, or under it. */
  has(path: string): boolean;
  /** The `authInfo` of an MCP request. */
  readonly authenticate?: SignedCaller['authenticate'];
  readonly pairing?: Pairing;
}

/** @throws AwaitError `bad-option` for flags that do not go together; the message says what to write instead */
export function askingOf(draft: Draft, logger: Logger): PageFlags | undefined {
  const { page: given, pair = false, jwks, issuer, audience, callers, header } = draft.ask;
  const login = {
    '--ask-jwks': jwks,
    '--ask-issuer': issuer,
    '--ask-audience': audience,
    '--ask-callers': callers,
  };
  const loginFlags = Object.entries({ ...login, '--ask-header': header })
    .filter(([, value]) => value !== undefined)
    .map(([name]) => name);
  const [other = pair ? '--ask-pair' : undefined] = loginFlags;
  if (given === undefined) {
    if (other === undefined) return undefined;
    throw optionError(
      `${other} needs the page: add --ask-page http://127.0.0.1:${draft.serving.port || 3_000}/ask`,
    );
  }
  if (pair && loginFlags.length > 0)
    throw optionError(`--ask-pair is for one person without a login: leave out ${loginFlags.join(', ')}`);
  const page = pageOf(given, draft);
  const has = (path: string): boolean => path === page.pathname || path.startsWith(`${page.pathname}/`);
  if (pair) {
    checkPair(page, draft);
    // Not by the logger: a log is kept, and others read it.
    const print = (code: string): void =>
      void process.stderr.write(
        `To answer questions in your browser, type this code there: ${code} (10 minutes, once)\n`,
      );
    const pairing = new Pairing({ page, print, logger });
    const ask = { page: given, authorize: pairing.authorize, person: () => LOCAL };
    const options = { ask, principal: () => LOCAL };
    return draft.serving.stdio ? { options, has } : { options, has, pairing };
  }
  const missing = Object.entries(login).flatMap(([name, value]) => (value === undefined ? [name] : []));
  if (jwks === undefined || issuer === undefined || audience === undefined || callers === undefined)
    throw optionError(
      `--ask-page needs ${missing.join(', ')}, by which it knows who answers; or, for one person here, --ask-pair`,
    );
  if (draft.serving.stdio) throw optionError('--ask-jwks needs HTTP: with --stdio write --ask-pair');
  if (!URL.canParse(jwks) || !(jwks.startsWith('https:') || isLoopbackUrl(new URL(jwks))))
    throw optionError(
      '--ask-jwks must be a URL such as https://login.example.com/jwks.json, https outside of loopback',
    );
  if (callers === audience)
    throw optionError(
      '--ask-callers must be another audience than --ask-audience: an agent can read the token of its host, which must not open the page',
    );
  if (header !== undefined && !/^[\w!#$%&'*+.^`|~-]+$/.test(header))
    throw optionError('--ask-header must be the name of a header, such as X-Forwarded-Access-Token');
  const parts = { jwks: new URL(jwks), issuer, audience, callers, header: header ?? 'Authorization', logger };
  const { authorize, person, authenticate } = new SignedCaller(parts);
  return { options: { ask: { page: given, authorize, person } }, has, authenticate };
}

/** The page, where its URL fits the server's. */
function pageOf(page: string, { options, serving }: Draft): URL {
  if (options.secrets === undefined)
    throw optionError(
      '--ask-page needs secrets, for its links: set MCP_AWAIT_SECRET to at least 32 random bytes, or write --secret-file PATH',
    );
  if (serving.stdio && options.store === undefined)
    throw optionError('--ask-page with --stdio is the page of another process: write --store URL');
  const hasStore = options.store !== undefined || options.state !== 'sealed';
  const none = (): undefined => undefined;
  let url: URL;
  try {
    url = checkAsk({ page, authorize: none, person: none }, { secrets: true, store: hasStore });
  } catch (error) {
    throw optionError(`--ask-page ${page}: ${AwaitError.from(error).message}`, error);
  }
  const { pathname } = url;
  if (TAKEN.includes(pathname) || new Paths(options.paths).find(pathname)?.wire !== 'mcp')
    throw optionError(
      `--ask-page ${page} is where this server has something else: choose another path, such as /ask`,
    );
  return url;
}

/**
 * Everybody who reaches this server is the same caller, so it must be reached from this machine alone. A browser sends
 * the cookie and the password to the origin of the page. Over http another process could listen there if the page's host
 * were a name of several addresses, or an address on which this server does not listen.
 */
function checkPair(page: URL, { serving }: Draft): void {
  const isHttp = page.protocol === 'http:';
  const { hostname, port } = page;
  if (!isLoopbackUrl(page))
    throw optionError(
      `--ask-pair needs a page on this machine, such as --ask-page http://127.0.0.1:${serving.port || 3_000}/ask; elsewhere write --ask-jwks`,
    );
  if (isHttp && hostname === 'localhost')
    throw optionError(
      `--ask-pair needs a page at one address: localhost is also ::1, where another process can take the port; write --ask-page ${page.href.replace('localhost', '127.0.0.1')}`,
    );
  // On stdio there is one caller, and the process that serves the page prints the code.
  if (serving.stdio) return;
  if (serving.forwarded || !(isLoopback(serving.host) || serving.host === 'localhost'))
    throw optionError('--ask-pair serves this machine alone: leave out --host and --forwarded');
  if (isHttp && Number(port || 80) !== serving.port)
    throw optionError(`--ask-page ${page.href} is not where this server listens: add --port ${port || 80}`);
  const address = hostname === '[::1]' ? '::1' : hostname;
  if (isHttp && serving.host !== address)
    throw optionError(`--ask-page ${page.href} is not where this server listens: add --host ${address}`);
  if (process.stderr.isTTY !== true)
    throw optionError(
      '--ask-pair prints its code on a terminal, and stderr is none: start it in a terminal, or write --ask-jwks',
    );
}

// --- callers by a signed token ---

/** Verifies the JWT of a login: who opens the page of an ask, and who calls. */

/** Signatures by a private key: with a shared secret, whoever can verify a token can make one. */
const ALGORITHMS = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
];
/** Codes of `jose` for a key set that could not be read: then nothing is known of the token. */
const UNREAD: readonly string[] = ['ERR_JOSE_GENERIC', 'ERR_JWKS_TIMEOUT', 'ERR_JWKS_INVALID'];
/** How long after a read of the keys no token causes another one, in milliseconds. */
const AGAIN = 1_000;
/** Bytes of a key set. */
const MOST_KEYS = 1_048_576;
const BEARER = /^bearer +/i;

interface SignedCallerParts {
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
    // Anybody's token of an unknown key has them read, and a new key is refused until they may be read again.
    this.#keys = createRemoteJWKSet(parts.jwks, {
      cooldownDuration: 5_000,
      [customFetch]: pausingFetch(AGAIN),
    });
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
    if (claims === undefined) throw badToken('the bearer token of a request is not valid');
    const { iss, sub, exp, client_id: client, azp } = claims;
    return {
      token,
      clientId: [client, azp].find((one) => typeof one === 'string') ?? '',
      scopes: [],
      expiresAt: exp,
      extra: { iss, sub },
    };
  };

  async #claimsOf(token: string, whose: 'audience' | 'callers'): Promise<Claims | undefined> {
    const { issuer, logger } = this.#parts;
    const other = this.#parts[whose === 'audience' ? 'callers' : 'audience'];
    try {
      const { payload } = await jwtVerify(token, this.#keys, {
        issuer,
        audience: this.#parts[whose],
        algorithms: ALGORITHMS,
        // The login's clock may be ahead.
        clockTolerance: 5,
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

/**
 * A `fetch` that makes no second request for so many milliseconds: called sooner, it throws why the last one gave no keys.
 * After a response with keys, `jose` calls it no sooner than that.
 */
function pausingFetch(pause: number): typeof fetch {
  let ended = -Infinity;
  let why: unknown;
  return async (...request) => {
    if (systemClock.elapsed() - ended < pause) throw why;
    try {
      const response = await fetch(...request);
      why = new Error(response.ok ? 'it holds no keys' : `HTTP ${response.status}`);
      if (response.ok) return boundedResponse(response, MOST_KEYS);
    } catch (error) {
      why = error;
    } finally {
      ended = systemClock.elapsed();
    }
    throw why;
  };
}
