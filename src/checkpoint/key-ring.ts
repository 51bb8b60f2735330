/**
 * The secrets that tokens are sealed with: the first seals, all open. A key is derived for each purpose
 * (HKDF, RFC 5869), so that a session's token is no request state even before its purpose is compared.
 */
import { createHash, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import { AwaitError } from '../error.ts';

export type Purpose = 'state' | 'session' | 'event' | 'task' | 'relay' | 'journal' | 'retry';

/** Least length of a secret, in bytes. */
const LEAST = 32;

interface DerivedKey {
  /** The name that tokens call it by. */
  readonly id: string;
  readonly key: KeyObject;
  /** The same, as `jose` wants it. */
  readonly webKey: Promise<CryptoKey>;
}

export class KeyRing {
  readonly #secrets: readonly { readonly id: string; readonly secret: string }[];
  readonly #derived = new Map<string, DerivedKey>();

  /** @throws AwaitError `bad-option` for a secret that is shorter than 32 bytes */
  constructor(secrets: readonly string[]) {
    assertSecrets(secrets);
    this.#secrets = secrets.map((secret) => ({ id: nameOf(secret), secret }));
  }

  /** The key that seals. */
  sealing(purpose: Purpose): DerivedKey {
    const [first] = this.#secrets;
    if (first === undefined) throw new AwaitError('internal', 'a key ring without keys');
    return this.#derive(first, purpose);
  }

  opening(purpose: Purpose, id: unknown): DerivedKey | undefined {
    const secret = this.#secrets.find((candidate) => candidate.id === id);
    return secret === undefined ? undefined : this.#derive(secret, purpose);
  }

  #derive({ id, secret }: { id: string; secret: string }, purpose: Purpose): DerivedKey {
    const name = `${purpose} ${id}`;
    let derived = this.#derived.get(name);
    if (derived === undefined) {
      const raw = new Uint8Array(
        hkdfSync('sha256', secret, new Uint8Array(32), `mcp-await ${purpose} 1`, 32),
      );
      const webKey = crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['decrypt']);
      derived = { id, key: createSecretKey(raw), webKey };
      this.#derived.set(name, derived);
    }
    return derived;
  }
}

/** Says what is wrong with a secret, before anything is built on it. */
export function assertSecrets(secrets: readonly unknown[]): asserts secrets is readonly string[] {
  for (const [index, secret] of secrets.entries()) {
    if (typeof secret !== 'string' || Buffer.byteLength(secret) < LEAST) {
      throw new AwaitError(
        'bad-option',
        `secrets[${index}] ${secret === undefined ? 'is undefined (is the environment variable set?); it ' : ''}must be a string of at least ${LEAST} bytes. Make one with: node -e "console.log(require('crypto').randomBytes(32).toString('base64url'))"`,
      );
    }
  }
}

/** Tells keys apart, and nothing about them. */
function nameOf(secret: string): string {
  return createHash('sha256').update(`mcp-await kid ${secret}`).digest('base64url').slice(0, 8);
}
