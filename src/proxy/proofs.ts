/**
 * Proves the bearer tokens of a proxy's callers: its remote server is asked about each, by a request that does nothing.
 * 1. What the server refuses (401, 403) is told to the client as the server said it.
 * 2. A token that was accepted is not asked about again for half a minute; one request at a time asks about a token.
 * 3. Strangers can send any number of tokens: only so many are asked about at once, and half of that is kept for
 *    tokens that the server has accepted before.
 * Tokens are kept as their names: a SHA-256.
 */

import { boundedText } from '../base/bounded-response.ts';
import { sha256 } from '../base/digest.ts';
import { Quota } from '../base/quota.ts';
import { keepNewest } from '../base/values.ts';
import { drainBody } from '../client/event-stream.ts';
import { fetchWithinOrigin } from '../client/redirect.ts';
import { type PeerLogger, reasonOf } from './link.ts';
import type { RemoteOptions } from './remote.ts';

/** What the server says of a token, or of a request without one. */
export type Proof =
  | { readonly is: 'accepted' }
  /** Nothing is known of it: the server cannot be reached, or too many tokens are asked about. */
  | { readonly is: 'unknown' }
  | {
      readonly is: 'refused';
      readonly status: 401 | 403;
      /** `www-authenticate` and `content-type`, as the server sent them. */
      readonly headers: Readonly<Record<string, string>>;
      readonly body: string;
    };

/** How long an accepted token is not asked about again, in milliseconds. */
const FRESH = 30_000;
/** How long it is accepted while the server cannot be reached: a restart is not the client's to know. */
const TRUSTED = 300_000;
/** Names of accepted tokens that are kept. */
const MOST_KNOWN = 10_000;
/** Requests to the server at once; `caller`: for strangers at one address. */
const AT_ONCE = { all: 128, caller: 32, anonymous: 64 };
/** How long the server may take, in milliseconds. */
const TIME = 10_000;
/** Characters of a refusal's body; a longer one is left out. */
const MOST_BODY = 16_384;
/** Of a refusal's bodies, those that no browser runs. */
const PLAIN = /^(?:application\/(?:[\w.-]+\+)?json|text\/plain)\b/i;

const PING = JSON.stringify({ jsonrpc: '2.0', id: 'mcp-await', method: 'ping' });
const ACCEPTED: Proof = { is: 'accepted' };
const UNKNOWN: Proof = { is: 'unknown' };

/** The name of a token's caller. */
export function tokenName(token: string): string {
  return sha256(`mcp-await bearer ${token}`);
}

export class Proofs {
  readonly #remote: RemoteOptions;
  readonly #logger: Pick<PeerLogger, 'warn'>;
  /** When a token was accepted, by its name, on the monotonic clock in milliseconds. */
  readonly #accepted = new Map<string, number>();
  readonly #asking = new Map<string, Promise<Proof>>();
  readonly #room = new Quota(AT_ONCE);
  #isAway = false;

  constructor(remote: RemoteOptions, logger: Pick<PeerLogger, 'warn'>) {
    this.#remote = remote;
    this.#logger = logger;
  }

  /**
   * @param token undefined for a request without one
   * @param address where the request comes from, if that is known
   */
  async prove(token: string | undefined, address?: string): Promise<Proof> {
    const name = nameOf(token);
    const accepted = this.#accepted.get(name);
    const age = accepted === undefined ? Infinity : performance.now() - accepted;
    if (age < FRESH) return ACCEPTED;
    const proof = await (this.#asking.get(name) ?? this.#prove(token, name, address));
    return proof.is === 'unknown' && age < TRUSTED ? ACCEPTED : proof;
  }

  /** The server refused it meanwhile: it is asked about again. */
  forget(token: string | undefined): void {
    this.#accepted.delete(nameOf(token));
  }

  #prove(token: string | undefined, name: string, address: string | undefined): Promise<Proof> {
    const quotaKey = this.#accepted.has(name) ? { principal: name } : { address };
    if (!this.#room.has(quotaKey)) return Promise.resolve(UNKNOWN);
    const asking = this.#ask(token)
      .then((proof) => this.#learn(name, proof))
      .finally(() => {
        this.#asking.delete(name);
        this.#room.leave(asking);
      });
    this.#room.hold(asking, quotaKey);
    this.#asking.set(name, asking);
    return asking;
  }

  #learn(name: string, proof: Proof): Proof {
    if (proof.is === 'unknown') return proof;
    this.#isAway = false;
    this.#accepted.delete(name);
    if (proof.is === 'accepted') keepNewest(this.#accepted.set(name, performance.now()), MOST_KNOWN);
    return proof;
  }

  /** Servers check a token before they look at the method, the session and the revision of a request. */
  async #ask(token: string | undefined): Promise<Proof> {
    const gone = new AbortController();
    const timer = setTimeout(() => gone.abort(), TIME);
    try {
      const response = await this.#send(token, gone.signal, { method: 'POST', body: PING });
      if (response.status !== 404 && response.status !== 405) return await this.#read(response);
      await drainBody(response.body);
      // An endpoint of HTTP+SSE takes no POST.
      return await this.#read(await this.#send(token, gone.signal, { method: 'GET' }));
    } catch (error) {
      return this.#unknown(reasonOf(error));
    } finally {
      clearTimeout(timer);
      // A stream that began is not needed.
      gone.abort();
    }
  }

  #send(token: string | undefined, signal: AbortSignal, init: RequestInit): Promise<Response> {
    const { url, headers } = this.#remote;
    const own = {
      ...headers,
      accept: init.method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream',
      'mcp-protocol-version': '2025-11-25',
      ...(init.method === 'POST' && { 'content-type': 'application/json' }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    };
    return fetchWithinOrigin(fetch, new URL(url), { ...init, headers: own, signal });
  }

  async #read(response: Response): Promise<Proof> {
    const { status, headers } = response;
    if (status === 401 || status === 403) {
      const type = headers.get('content-type') ?? '';
      const challenge = headers.get('www-authenticate');
      const body = PLAIN.test(type) ? await boundedText(response, MOST_BODY) : undefined;
      const said = {
        ...(challenge !== null && { 'www-authenticate': challenge }),
        ...(body !== undefined && { 'content-type': type }),
      };
      return { is: 'refused', status, headers: said, body: body ?? '' };
    }
    if (status === 429 || status >= 500 || (status >= 300 && status < 400))
      return this.#unknown(`it replies ${status}`);
    if (!headers.get('content-type')?.startsWith('text/event-stream')) await boundedText(response, MOST_BODY);
    return ACCEPTED;
  }

  /** Logged once, until the server says something. */
  #unknown(reason: string): Proof {
    if (!this.#isAway)
      this.#logger.warn('the server cannot be asked about the tokens of callers', { reason });
    this.#isAway = true;
    return UNKNOWN;
  }
}

function nameOf(token: string | undefined): string {
  return token === undefined ? '' : tokenName(token);
}
