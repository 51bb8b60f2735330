/**
 * Records as they stand in a store that others may read (`encrypt: true`): sealed like tokens, with a key of
 * their own purpose, each for the key it stands under, so that no record can be put in the place of another.
 */
import { isObject } from '../call/json.ts';
import { AwaitError } from '../error.ts';
import type { Sealer } from './sealed.ts';

export interface RecordCipher {
  encode(key: string, value: unknown): unknown;
  /** @throws AwaitError `format` for what was not written with one of these secrets, or stood elsewhere */
  decode(key: string, stored: unknown): Promise<unknown>;
}

export const plainRecords: RecordCipher = {
  encode: (_key, value) => value,
  decode: async (key, stored) => {
    if (isObject(stored) && typeof stored.sealed === 'string') {
      throw new AwaitError(
        'format',
        `${key} is encrypted: set encrypt: true, as the process that wrote it has`,
      );
    }
    return stored;
  },
};

export function encryptedRecords(sealer: Sealer): RecordCipher {
  return {
    // Records expire by their own rules; a token's expiry would only be a second one.
    encode: (key, value) => ({ sealed: sealer.seal('journal', { key, value }, Number.MAX_SAFE_INTEGER) }),
    decode: async (key, stored) => {
      if (stored === undefined || stored === null) return stored;
      if (!isObject(stored) || typeof stored.sealed !== 'string') {
        throw new AwaitError('format', `${key} is not encrypted, and encrypt: true takes no plain records`);
      }
      const body = await open(sealer, key, stored.sealed);
      if (body.key !== key) throw new AwaitError('format', `${key} holds what was written for another key`);
      return body.value;
    },
  };
}

async function open(sealer: Sealer, key: string, sealed: string) {
  try {
    return await sealer.open('journal', sealed, Number.POSITIVE_INFINITY);
  } catch (error) {
    throw new AwaitError('format', `${key} cannot be decrypted with the secrets given`, error);
  }
}
