/**
 * The form of records in a store. Each names its service, since services may share a store: by its audience, and by the
 * secret it was written under. Records of another service are refused like bad tokens.
 * With `encrypt: true` records are sealed like tokens, with a key for this purpose, and bound to their store key, so
 * that no record can be put in the place of another.
 */
import { AwaitError, badToken, isObject } from '../base/values.ts';
import type { KeyRing } from './key-ring.ts';
import type { Sealer } from './sealed.ts';

export interface RecordCipher {
  encode(key: string, value: unknown): unknown;
  /**
   * @throws AwaitError `bad-token` for a record of another service, or under another secret; `format` for a value that
   * this package did not write
   */
  decode(key: string, stored: unknown): Promise<unknown>;
}

/**
 * @param ring the secrets under which a record may be written; without it, any
 * @param unknown resolves once secrets were fetched again, for a record that names an unknown one
 */
export function plainRecords(audience: string, ring?: KeyRing, unknown?: () => Promise<void>): RecordCipher {
  return {
    encode: (_key, value) => {
      // Keyv's encoder calls whatever is named `toJSON`, also where it is an argument that a client sent.
      const text = JSON.stringify(value) ?? 'null';
      const kept = text.includes('"toJSON"') ? { text } : { value };
      return { audience, ...(ring && { kid: ring.current }), ...kept };
    },
    decode: async (key, stored) => {
      if (stored === undefined || stored === null) return undefined;
      if (isObject(stored) && typeof stored.sealed === 'string') {
        throw new AwaitError(
          'format',
          `${key} is encrypted: set encrypt: true, as the process that wrote it has`,
        );
      }
      if (!isObject(stored) || typeof stored.audience !== 'string')
        throw new AwaitError('format', `${key} is not a record of mcp-await`);
      if (stored.audience !== audience) throw foreign(key, `audience ${stored.audience}`);
      if (ring !== undefined && !ring.has(stored.kid)) await unknown?.();
      if (ring !== undefined && !ring.has(stored.kid)) throw foreign(key, 'another secret');
      return typeof stored.text === 'string' ? JSON.parse(stored.text) : stored.value;
    },
  };
}

export function encryptedRecords(sealer: Sealer): RecordCipher {
  return {
    // Records expire by their own rules; a token's expiry would only be a second one.
    encode: (key, value) => ({
      sealed: sealer.seal('journal', { key, value }, Number.MAX_SAFE_INTEGER, Infinity),
    }),
    decode: async (key, stored) => {
      if (stored === undefined || stored === null) return undefined;
      if (!isObject(stored) || typeof stored.sealed !== 'string') {
        throw new AwaitError('format', `${key} is not encrypted, and encrypt: true refuses plain records`);
      }
      const body = await open(sealer, key, stored.sealed);
      if (body.key !== key) throw new AwaitError('format', `${key} holds a record of another key`);
      return body.value;
    },
  };
}

/**
 * Reads plain and encrypted records, and writes in the form of the last one read: for the operator's tools, which run
 * beside servers.
 */
export function eitherRecords(audience: string, ring: KeyRing, sealer: Sealer): RecordCipher {
  const [plain, encrypted] = [plainRecords(audience, ring), encryptedRecords(sealer)];
  let last = plain;
  return {
    encode: (key, value) => last.encode(key, value),
    decode: (key, stored) => {
      if (stored === undefined || stored === null) return Promise.resolve(undefined);
      last = isObject(stored) && typeof stored.sealed === 'string' ? encrypted : plain;
      return last.decode(key, stored);
    },
  };
}

async function open(sealer: Sealer, key: string, sealed: string) {
  try {
    return await sealer.open('journal', sealed, Infinity);
  } catch (error) {
    throw foreign(key, String(AwaitError.from(error).message), error);
  }
}

function foreign(key: string, why: string, cause?: unknown): AwaitError {
  return badToken(`${key} was written by another service, or under other secrets: ${why}`, cause);
}
