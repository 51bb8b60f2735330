/**
 * `--forward-authorization`: callers authenticate at the server behind the proxy. Each is named by a digest of the
 * whole token. A claim in it is not believed: the server alone can verify it.
 */
import type { IncomingMessage } from 'node:http';
import { decodeJwt } from 'jose';
import { defined, type JsonObject, optionError } from '../base/values.ts';
import { countedAddress } from '../doors/http/address.ts';
import type { Reply } from '../doors/http/exchange.ts';
import { CredentialsRefused, LATER } from '../doors/http/refused.ts';
import type { NodeRequest } from '../node.ts';
import type { Logger } from '../observe/logger.ts';
import { Proofs, tokenName } from '../proxy/proofs.ts';
import type { RemoteOptions } from '../proxy/remote.ts';
import { isMetadata, ServerMetadata } from '../proxy/server-metadata.ts';
import type { Draft } from './flags.ts';

/** Of other schemes, which are for one request or one server, nothing is passed on. */
const BEARER = /^bearer +([\x21-\x7e]+)$/i;
/** The issuer in the names of callers. */
const ISSUER = 'mcp-await:forwarded';

/** @throws AwaitError `bad-option` for flags that do not go together */
export function checkForwarding({ peer, serving, ask, options }: Draft): void {
  const flag = '--forward-authorization';
  if (peer.url === undefined)
    throw optionError(`${flag} needs a remote server, which checks the tokens: add --url`);
  if (Object.keys(peer.headers).some((name) => /^authorization$/i.test(name)))
    throw optionError(
      `${flag} sends each caller's own token, and --header Authorization one for all: leave out one of them`,
    );
  const [page] = Object.keys(defined(ask));
  if (page !== undefined)
    throw optionError(
      `${flag} leaves it to the server who a caller is, and --ask-page, --ask-jwks and --ask-pair need known callers`,
    );
  if (serving.stdio) throw optionError(`${flag} needs HTTP, where a caller sends a token: leave out --stdio`);
  if (options.instance === 'process')
    throw optionError(
      `${flag} gives each caller connections of its own, and --instance process one to all: leave out one of them`,
    );
}

export class Forwarding {
  readonly #proofs: Proofs;
  readonly #metadata: ServerMetadata;
  readonly #logger: Logger;

  constructor(remote: RemoteOptions, logger: Logger) {
    this.#proofs = new Proofs(remote, logger);
    this.#metadata = new ServerMetadata(remote);
    this.#logger = logger;
  }

  /** The server refused a token in the middle of a session or a call. */
  readonly refused = (token: string | undefined): void => this.#proofs.forget(token);

  /**
   * The `authInfo` of a request; undefined for one without a bearer token that the server accepts.
   * @throws CredentialsRefused
   */
  readonly authenticate = async (req: IncomingMessage): Promise<JsonObject | undefined> => {
    const [, token] = BEARER.exec(req.headers.authorization ?? '') ?? [];
    const proof = await this.#proofs.prove(token, addressOf(req));
    if (proof.is === 'unknown') throw new CredentialsRefused(LATER);
    if (proof.is === 'refused') {
      const { status, headers, body } = proof;
      throw new CredentialsRefused({ status, headers: { ...headers, 'cache-control': 'no-store' }, body });
    }
    if (token === undefined) return undefined;
    return {
      token,
      clientId: '',
      scopes: [],
      ...defined({ expiresAt: expiryOf(token) }),
      extra: { iss: ISSUER, sub: tokenName(token) },
    };
  };

  /** Whether a path is that of a document about authorization. */
  readonly has = isMetadata;

  /** @param path one that it has */
  async metadata(path: string, req: NodeRequest): Promise<Reply> {
    if (req.method !== 'GET' && req.method !== 'HEAD')
      return { status: 405, headers: { allow: 'GET, HEAD' } };
    return this.#metadata.get(path, addressOf(req));
  }

  /** @returns whether the server wants credentials, so that nothing more can be tried without */
  async check(): Promise<boolean> {
    const nobodys = await this.#proofs.prove(`nobody-issued-this-${crypto.randomUUID()}`);
    if (nobodys.is === 'accepted')
      this.#logger.warn(
        'the server accepts a ping with a token that nobody issued, so whoever makes one up is a known caller; leave out --forward-authorization',
      );
    return (await this.#proofs.prove(undefined)).is === 'refused';
  }
}

function addressOf(req: NodeRequest): string | undefined {
  const address = typeof req.ip === 'string' ? req.ip : req.socket.remoteAddress;
  return countedAddress(defined({ address }));
}

/** When a JWT says that it expires, in seconds since the epoch: its caller's streams end then. */
function expiryOf(token: string): number | undefined {
  try {
    const { exp } = decodeJwt(token);
    return typeof exp === 'number' ? exp : undefined;
  } catch {
    return undefined;
  }
}
