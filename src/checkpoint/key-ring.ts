/**
 * The secrets that seal tokens: the first seals, all open. Keys are derived by HKDF (RFC 5869), one for each purpose,
 * so a session's token fails to decrypt as request state before its purpose is even compared.
 * Each process derives a new sealing key every hour and every 2²⁸ tokens, with a random salt in the token's header:
 * AES-GCM with random nonces must seal fewer than 2³² messages under one key (NIST SP 800-38D, 8.3), and one secret
 * serves many processes for a long time.
 */
import { createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto';
import { sha256 } from '../base/digest.ts';
import { AwaitError, keepNewest } from '../base/values.ts';
import { checkedSecrets } from './secrets.ts';

export type KeyPurpose = 'state' | 'session' | 'event' | 'task' | 'relay' | 'journal' | 'retry' | 'ask';

/** How long a derived key seals, in milliseconds, and how many tokens. */
const SEALS = { time: 3_600_000, tokens: 2 ** 28 };
/** Bytes of a salt. */
const SALT = 16;
/** A salt as tokens have it. */
const SALT_TEXT = /^[\w-]{22}$/;
/** Keys of other processes and other hours that are kept; deriving one takes some 20 µs. */
const OPENING_KEPT = 1_000;

interface Secret {
  readonly id: string;
  readonly secret: string;
}

interface SealingKey {
  readonly key: KeyObject;
  /** The header of a JWE that names it, in base64url. */
  readonly header: string;
}

interface Current extends SealingKey {
  readonly until: number;
  left: number;
}

export class KeyRing {
  readonly #now: () => number;
  #secrets: readonly Secret[] = [];
  readonly #sealing = new Map<KeyPurpose, Current>();
  /** As `jose` wants them. */
  readonly #opening = new Map<string, Promise<CryptoKey>>();
  readonly #fixed = new Map<string, KeyObject>();

  /**
   * @param secrets omitted where `change` sets them later
   * @param now monotonic, in milliseconds
   * @throws AwaitError `bad-option` for a secret that is too short, or can be guessed
   */
  constructor(secrets?: readonly string[], now: () => number = () => performance.now()) {
    this.#now = now;
    if (secrets !== undefined) this.change(secrets);
  }

  /** @throws AwaitError `bad-option`: nothing has changed then */
  change(secrets: readonly unknown[]): void {
    const named = checkedSecrets(secrets).map((secret) => ({
      // Distinguishes keys without revealing them.
      id: sha256(`mcp-await kid ${secret}`).slice(0, 8),
      secret,
    }));
    if (named[0]?.id !== this.#secrets[0]?.id) this.#sealing.clear();
    this.#secrets = named;
  }

  /** Which secret seals. */
  get current(): string {
    return this.#first.id;
  }

  /** Whether a secret of this name is known. */
  has(id: unknown): boolean {
    return this.#secrets.some((secret) => secret.id === id);
  }

  /** Keys for the names of indexes, the sealing secret's first. */
  macKeys(): KeyObject[] {
    return this.#secrets.map((secret) => this.#fixedKey(secret, 'index'));
  }

  /** The key of the digests that opaque tokens are known by. */
  get callerKey(): KeyObject {
    return this.#fixedKey(this.#first, 'caller');
  }

  /** The key that seals now. */
  sealing(purpose: KeyPurpose): SealingKey {
    let current = this.#sealing.get(purpose);
    if (current === undefined || current.left <= 0 || this.#now() >= current.until) {
      const salt = randomBytes(SALT);
      const key = createSecretKey(derived(this.#first.secret, salt, purpose));
      const named = { kid: this.#first.id, salt: salt.toString('base64url') };
      current = {
        key,
        header: Buffer.from(JSON.stringify({ alg: 'dir', enc: 'A256GCM', ...named })).toString('base64url'),
        until: this.#now() + SEALS.time,
        left: SEALS.tokens,
      };
      this.#sealing.set(purpose, current);
    }
    current.left -= 1;
    return current;
  }

  /** @returns undefined if no secret has that name, or the salt is malformed */
  opening(purpose: KeyPurpose, kid: unknown, salt: unknown): Promise<CryptoKey> | undefined {
    const secret = this.#secrets.find(({ id }) => id === kid);
    if (secret === undefined || typeof salt !== 'string' || !SALT_TEXT.test(salt)) return undefined;
    const name = `${purpose} ${secret.id} ${salt}`;
    let key = this.#opening.get(name);
    if (key === undefined) {
      const raw = derived(secret.secret, Buffer.from(salt, 'base64url'), purpose);
      key = crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['decrypt']);
    }
    // Used keys are kept longest, since strangers may send any salt.
    this.#opening.delete(name);
    this.#opening.set(name, key);
    keepNewest(this.#opening, OPENING_KEPT);
    return key;
  }

  get #first(): Secret {
    const [first] = this.#secrets;
    if (first === undefined) throw new AwaitError('internal', 'a key ring without keys');
    return first;
  }

  #fixedKey({ id, secret }: Secret, purpose: 'index' | 'caller'): KeyObject {
    const name = `${purpose} ${id}`;
    const key = this.#fixed.get(name) ?? createSecretKey(derived(secret, Buffer.alloc(32), purpose));
    this.#fixed.set(name, key);
    return key;
  }
}

function derived(
  secret: string,
  salt: Uint8Array,
  purpose: KeyPurpose | 'index' | 'caller',
): Uint8Array<ArrayBuffer> {
  return new Uint8Array(hkdfSync('sha256', secret, salt, `mcp-await ${purpose} 1`, 32));
}
