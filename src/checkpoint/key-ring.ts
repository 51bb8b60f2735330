/**
 * The secrets that tokens are sealed with: the first seals, all open. A key is derived for each purpose
 * (HKDF, RFC 5869), so that a session's token is no request state even before its purpose is compared.
 */
import { AwaitError } from '../error.ts';

export type Purpose = 'state' | 'session' | 'event' | 'task';

/** Least length of a secret, in bytes. */
const LEAST = 32;

interface Key {
  readonly id: string;
  readonly material: Promise<CryptoKey>;
  readonly derived: Map<Purpose, Promise<CryptoKey>>;
}

export class KeyRing {
  readonly #keys: readonly Key[];

  private constructor(keys: readonly Key[]) {
    this.#keys = keys;
  }

  /** @throws AwaitError `bad-option` for a secret that is empty or shorter than 32 bytes */
  static async from(secrets: readonly string[]): Promise<KeyRing> {
    return new KeyRing(await Promise.all(secrets.map(keyFrom)));
  }

  /** The key that seals, and the name that tokens call it by. */
  async sealing(purpose: Purpose): Promise<{ id: string; key: CryptoKey }> {
    const [first] = this.#keys;
    if (first === undefined) throw new AwaitError('internal', 'a key ring without keys');
    return { id: first.id, key: await derive(first, purpose) };
  }

  async opening(purpose: Purpose, id: unknown): Promise<CryptoKey | undefined> {
    const key = this.#keys.find((candidate) => candidate.id === id);
    return key === undefined ? undefined : derive(key, purpose);
  }
}

/** Says what is wrong with a secret, before anything is built on it. */
export function assertSecrets(secrets: readonly unknown[]): asserts secrets is readonly string[] {
  for (const [index, secret] of secrets.entries()) {
    if (typeof secret !== 'string' || new TextEncoder().encode(secret).byteLength < LEAST) {
      throw new AwaitError(
        'bad-option',
        `secrets[${index}] must be a string of at least ${LEAST} bytes. Make one with: node -e "console.log(require('crypto').randomBytes(32).toString('base64url'))"`,
      );
    }
  }
}

async function keyFrom(secret: string): Promise<Key> {
  const bytes = new TextEncoder().encode(secret);
  const hash = new Uint8Array(
    await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`mcp-await kid ${secret}`)),
  );
  return {
    id: Buffer.from(hash.subarray(0, 6)).toString('base64url'),
    material: crypto.subtle.importKey('raw', bytes, 'HKDF', false, ['deriveKey']),
    derived: new Map(),
  };
}

function derive(key: Key, purpose: Purpose): Promise<CryptoKey> {
  let derived = key.derived.get(purpose);
  if (derived === undefined) {
    derived = key.material.then((material) =>
      crypto.subtle.deriveKey(
        {
          name: 'HKDF',
          hash: 'SHA-256',
          salt: new Uint8Array(32),
          info: new TextEncoder().encode(`mcp-await ${purpose} 1`),
        },
        material,
        { name: 'AES-GCM', length: 256 },
        false,
        ['encrypt', 'decrypt'],
      ),
    );
    key.derived.set(purpose, derived);
  }
  return derived;
}
