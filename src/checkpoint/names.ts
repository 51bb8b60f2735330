/**
 * The names of records in the store. Anyone who can read the store sees every name, even if records are encrypted, so:
 *
 * 1. No name contains an id: an anonymous caller's task, an ask and a session of 2024-11-05 belong to anyone who knows
 *    their id. A name holds the SHA-256 of audience and id; ids have 122 random bits or more.
 * 2. That digest has no key: after a rotation of secrets every record is found, and two processes that seal with
 *    different secrets contend for one position.
 * 3. A value that can be guessed (a caller, a workspace, "all tasks") is an HMAC first: written under the secret that
 *    seals, read under all (`guessable`).
 * 4. Expiry and position are readable, for the sweeper and for the operator's tools, which look for a journal's first
 *    entry.
 *
 * A name inside of this package is `<expiry in base 36>.<anything>[:<position>]`; in the store it is
 * `mcp-await:<expiry>.<digest>[:<position>]`.
 */
import { createHmac } from 'node:crypto';
import { sha256 } from '../base/digest.ts';
import { AwaitError, keepNewest } from '../base/values.ts';
import type { KeyRing } from './key-ring.ts';

const PREFIX = 'mcp-await:';
/** Characters of base64url: 132 bits. */
const LENGTH = 22;
/** Keys that are remembered: a session's are looked up with each of its requests. */
const KEYS = 2_000;
/** Longer names, in characters, are ids that a client made up: their keys are not remembered. */
const LONGEST = 256;
const INNER = /^([0-9a-z]{1,11})\.(.*?)(:\d{1,12})?$/s;
const KEY = /mcp-await:(([0-9a-z]{1,11})\.[\w-]{22})(?::(\d{1,12}))?$/;

/** The parts of a record's name that can be read back from it. */
export interface ReadName {
  /** The same for all positions of a journal: the name of a call in `mcp-await calls` and the log. */
  readonly label: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
  readonly position?: number;
}

export class Names {
  readonly #audience: string;
  readonly #ring: KeyRing | undefined;
  readonly #keys = new Map<string, string>();

  /** @param ring undefined if nothing is looked up by a value that can be guessed */
  constructor(audience: string, ring?: KeyRing) {
    this.#audience = audience;
    this.#ring = ring;
  }

  /** The key of a record. A name without an expiry is an id that a client made up: no record has it. */
  key(name: string): string {
    const known = this.#keys.get(name);
    if (known !== undefined) return known;
    const [, expiry = '0', id = name, position = ''] = INNER.exec(name) ?? [];
    const digest = sha256(JSON.stringify([this.#audience, `${expiry}.${id}`]));
    const key = `${PREFIX}${expiry}.${digest.slice(0, LENGTH)}${position}`;
    if (name.length > LONGEST) return key;
    this.#keys.set(name, key);
    keepNewest(this.#keys, KEYS);
    return key;
  }

  /** The name of a call in the log and the operator's tools; its id does not follow from it. */
  label(callId: string): string {
    return this.key(callId).slice(PREFIX.length);
  }

  /**
   * HMACs that take the place of a value that could be guessed.
   * @returns one for each secret, the one to write under first
   */
  guessable(...parts: readonly (string | null)[]): readonly [string, ...string[]] {
    const text = JSON.stringify([this.#audience, ...parts]);
    const [first, ...others] = (this.#ring?.macKeys() ?? []).map((key) =>
      createHmac('sha256', key).update(text).digest('base64url').slice(0, LENGTH),
    );
    if (first === undefined) throw new AwaitError('internal', 'an index without a key');
    return [first, ...others];
  }
}

/** The key of a position beside another: `label` and position are readable in both. */
export function keyAt(label: string, position: number): string {
  return `${PREFIX}${label}:${position}`;
}

/** Reads a key as an adapter lists it, with its own prefix or without. */
export function readName(key: string): ReadName | undefined {
  const [, label, expiry, position] = KEY.exec(key) ?? [];
  if (label === undefined || expiry === undefined) return undefined;
  return {
    label,
    expires: Number.parseInt(expiry, 36),
    ...(position !== undefined && { position: Number(position) }),
  };
}
