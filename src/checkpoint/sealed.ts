/**
 * Tokens that a client carries: JWE (RFC 7516), `dir` with A256GCM. All content is encrypted. Opening checks purpose,
 * expiry, audience and binding before the content is used; the reason of a failure goes to the logger alone.
 * `jose` parses and decrypts what strangers send. Sealing is a few lines of node:crypto: `jose` uses WebCrypto, which
 * schedules each operation on a thread, and that cost a tenth of a round trip.
 */
import { createCipheriv, randomBytes } from 'node:crypto';
import { compactDecrypt } from 'jose';
import {
  AwaitError,
  badToken,
  defined,
  isObject,
  type JsonObject,
  keepNewest,
  objectOf,
} from '../base/values.ts';
import { readCheckpoint } from '../call/journal/entries.ts';
import type { Binding, StateTokens, TokenState } from '../call/ports.ts';
import type { KeyPurpose, KeyRing } from './key-ring.ts';

export interface SealOptions {
  readonly ring: KeyRing;
  /** Which service tokens are for; one of another service with the same secret is refused. */
  readonly audience: string;
  /** Most characters of a token; longer ones are refused unread. */
  readonly maxLength: number;
  readonly now: () => number;
  /** Resolves once secrets were asked for again, where a token names one that is not known. */
  readonly unknown?: () => Promise<void>;
}

interface Envelope {
  readonly purpose: KeyPurpose;
  readonly audience: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
  readonly body: JsonObject;
}

export class Sealer {
  readonly #options: SealOptions;

  constructor(options: SealOptions) {
    this.#options = options;
  }

  /**
   * A compact JWE (RFC 7516, section 7.1): header, no encrypted key, nonce, ciphertext, tag.
   *
   * @param longest characters of a token that may be made, since a longer one would be refused as it is opened
   * @throws AwaitError `limit`
   */
  seal(purpose: KeyPurpose, body: JsonObject, expires: number, longest = this.#options.maxLength): string {
    const { ring, audience } = this.#options;
    const { key, header } = ring.sealing(purpose);
    const envelope: Envelope = { purpose, audience, expires, body };
    const nonce = randomBytes(12);
    const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(header));
    const sealed = Buffer.concat([cipher.update(JSON.stringify(envelope), 'utf8'), cipher.final()]);
    const parts = [nonce, sealed, cipher.getAuthTag()].map((part) => part.toString('base64url'));
    const token = `${header}..${parts.join('.')}`;
    if (token.length > longest) {
      const message = `a token (${purpose}) would have ${token.length} characters, more than ${longest}; return less from steps, or use state: 'stored'`;
      throw new AwaitError('limit', message);
    }
    return token;
  }

  /**
   * @param longest most characters of the token
   * @throws AwaitError `bad-token`
   */
  async open(purpose: KeyPurpose, token: unknown, longest = this.#options.maxLength): Promise<JsonObject> {
    const { ring, audience, unknown } = this.#options;
    if (typeof token !== 'string') throw bad('it is no string');
    if (token.length > longest) throw bad(`it has ${token.length} characters, more than ${longest}`);
    if (!isCanonical(token)) throw bad('it is no compact JWE as this package writes it');
    if (unknown !== undefined && !ring.has(headerOf(token).kid)) await unknown();
    const envelope = await this.#decrypt(purpose, token, ring);
    if (envelope.purpose !== purpose) throw bad(`its purpose is ${String(envelope.purpose)}, not ${purpose}`);
    if (envelope.audience !== audience) throw bad(`it is for ${String(envelope.audience)}, not ${audience}`);
    if (this.hasExpired(envelope.expires)) throw bad('it expired');
    if (!isObject(envelope.body)) throw bad('it has no body');
    return envelope.body;
  }

  hasExpired(expires: unknown): boolean {
    return typeof expires !== 'number' || this.#options.now() > expires;
  }

  async #decrypt(purpose: KeyPurpose, token: string, ring: KeyRing): Promise<JsonObject> {
    try {
      const { plaintext } = await compactDecrypt(
        token,
        (header) => {
          const key = ring.opening(purpose, header.kid, header.salt);
          if (key === undefined) throw bad(`no secret has its key id ${String(header.kid)}`);
          return key;
        },
        { keyManagementAlgorithms: ['dir'], contentEncryptionAlgorithms: ['A256GCM'] },
      );
      const envelope: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(plaintext));
      if (!isObject(envelope)) throw bad('it holds no object');
      return envelope;
    } catch (error) {
      if (error instanceof AwaitError) throw error;
      throw badToken('a token cannot be opened', error);
    }
  }
}

function headerOf(token: string): JsonObject {
  try {
    const header: unknown = JSON.parse(
      Buffer.from(token.slice(0, token.indexOf('.')), 'base64url').toString(),
    );
    return objectOf(header);
  } catch {
    return {};
  }
}

/** Tokens of this process that are recognized without being opened. */
const MINTED = 1_000;
/** Longest of them. */
const MINTED_LENGTH = 4_000;

type SealedState = TokenState & { readonly binding: unknown; readonly expires?: number };

/** The tokens of suspended calls. @param time the clock that processes share, where it matters when a client answers */
export function stateTokens(sealer: Sealer, time?: () => number): StateTokens {
  // State by token text: a client that sends back the very text sealed here needs no decryption.
  const minted = new Map<string, string>();
  return {
    async seal(state, binding, expires) {
      const body = { ...state, binding, ...defined({ askedAt: time?.() }) };
      const token = sealer.seal('state', body, expires);
      if (token.length <= MINTED_LENGTH) minted.set(token, JSON.stringify({ ...body, expires }));
      keepNewest(minted, MINTED);
      return token;
    },
    async open(token, binding): Promise<TokenState> {
      const answeredAt = time?.();
      const text = minted.get(token);
      const known = text === undefined ? undefined : (JSON.parse(text) as JsonObject);
      if (known !== undefined && sealer.hasExpired(known.expires)) throw bad('it expired');
      const opened = known ?? (await sealer.open('state', token));
      const { binding: bound, checkpoint, expires: _, ...state } = opened as unknown as SealedState;
      const differs = differing(bound, binding);
      if (differs !== undefined) throw bad(`it is bound to another ${differs}`);
      if (typeof state.callId !== 'string' || typeof state.at !== 'number') throw bad('it names no call');
      return { ...state, ...defined({ checkpoint: checkpoint && readCheckpoint(checkpoint), answeredAt }) };
    },
  };
}

/** One token has one spelling: decoders let pass white space, and bits behind the last byte. */
function isCanonical(token: string): boolean {
  const parts = token.split('.');
  return (
    parts.length === 5 && parts.every((part) => Buffer.from(part, 'base64url').toString('base64url') === part)
  );
}

function differing(bound: unknown, binding: Binding): string | undefined {
  if (!isObject(bound)) return 'request';
  // The digest of the arguments is a getter of its class, which a spread leaves out.
  const wanted = { ...binding, args: binding.args } as unknown as JsonObject;
  const names = new Set([...Object.keys(bound), ...Object.keys(wanted)]);
  return [...names].find((name) => bound[name] !== wanted[name]);
}

function bad(reason: string): AwaitError {
  return badToken(`a token is refused: ${reason}`);
}
