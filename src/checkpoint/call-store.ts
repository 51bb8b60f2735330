/**
 * Journals in a Keyv: entry n of a call under `mcp-await:<call>:<n>`, inserted if absent and never changed.
 * Who loses a position is fenced. Expiry is ours (the call's id tells it), with a margin for clocks that
 * differ; Keyv's own would let a reader whose clock is ahead delete a live record.
 */
import type Keyv from 'keyv';
import type { Clock } from '../call/clock.ts';
import { type CallRecord, type Delivered, type Entry, readCheckpoint } from '../call/journal.ts';
import { isObject } from '../call/json.ts';
import { type Entries, openJournal } from '../call/open-journal.ts';
import type { CallStore, OpenJournal } from '../call/ports.ts';
import { AwaitError } from '../error.ts';
import { plainRecords, type RecordCipher } from './encrypted.ts';
import { insertIfAbsent, overwrite, primitiveOf, read, remove } from './insert.ts';

const PREFIX = 'mcp-await:';
/** How far clocks may differ before a record that is still wanted is deleted. */
const MARGIN = 300_000;

export class KeyvCallStore implements CallStore {
  readonly #keyv: Keyv;
  readonly #clock: Clock;
  readonly #lease: number;
  readonly #cipher: RecordCipher;

  /** @param lease how long the owner of a turn may be silent, in milliseconds */
  constructor(keyv: Keyv, clock: Clock, lease: number, cipher: RecordCipher = plainRecords) {
    this.#cipher = cipher;
    this.#keyv = keyv;
    this.#clock = clock;
    this.#lease = lease;
  }

  get primitive(): ReturnType<typeof primitiveOf> {
    return primitiveOf(this.#keyv);
  }

  open(call: CallRecord, after: number): OpenJournal {
    const lifetime = (): number => this.#lifetime(call.expires);
    const entries: Entries = {
      insert: (at, entry) => {
        const key = keyOf(call.id, at);
        return insertIfAbsent(this.#keyv, key, this.#cipher.encode(key, wrapped(entry)), lifetime());
      },
      read: (at) => this.read(call.id, at),
      beat: (sign) => overwrite(this.#keyv, `${PREFIX}${call.id}:beat`, sign, lifetime()),
    };
    return openJournal(entries, call, after, this.#clock, this.#lease);
  }

  async read(callId: string, position: number): Promise<Entry | undefined> {
    const key = keyOf(callId, position);
    const found = await this.#cipher.decode(key, await read(this.#keyv, key));
    if (found === undefined || found === null) return undefined;
    const value = unwrapped(found);
    if (!isObject(value) || typeof value.type !== 'string') {
      throw new AwaitError('format', `entry ${position} of call ${callId} is no entry of a journal`);
    }
    if (value.type === 'suspended') readCheckpoint(value.checkpoint);
    return value as unknown as Entry;
  }

  heard(callId: string): Promise<unknown> {
    return read(this.#keyv, `${PREFIX}${callId}:beat`);
  }

  deliver(callId: string, key: string, response: Delivered, expires: number): Promise<boolean> {
    return this.insert(`${callId}:in:${key}`, { response }, expires);
  }

  async delivered(callId: string, key: string): Promise<Delivered | undefined> {
    const found = await this.get(`${callId}:in:${key}`);
    return isObject(found) ? (found.response as Delivered) : undefined;
  }

  get isShared(): boolean {
    return this.primitive !== 'map';
  }

  /** Only where the store is this process's memory: others keep what they have until it expires. */
  forget(call: CallRecord, upTo: number): void {
    if (this.primitive !== 'map') return;
    for (let position = 0; position <= upTo; position += 1) void remove(this.#keyv, keyOf(call.id, position));
  }

  /** Inserts a record of another kind, such as a session's. */
  insert(name: string, value: unknown, expires: number): Promise<boolean> {
    const key = `${PREFIX}${name}`;
    return insertIfAbsent(this.#keyv, key, this.#cipher.encode(key, value), this.#lifetime(expires));
  }

  async get(name: string): Promise<unknown> {
    const key = `${PREFIX}${name}`;
    return this.#cipher.decode(key, await read(this.#keyv, key));
  }

  /** Writes a record over what was there: one that is a hint to find others by, and no more. */
  replace(name: string, value: unknown, expires: number): Promise<void> {
    const key = `${PREFIX}${name}`;
    return overwrite(this.#keyv, key, this.#cipher.encode(key, value), this.#lifetime(expires));
  }

  remove(name: string): Promise<void> {
    return remove(this.#keyv, `${PREFIX}${name}`);
  }

  /**
   * Deletes what has expired, where the store can list its keys and does not expire them by itself.
   * @returns how many records were deleted
   */
  async sweep(): Promise<number> {
    const { iterator } = this.#keyv as {
      iterator?: (namespace?: string) => AsyncIterable<[string, unknown]>;
    };
    if (iterator === undefined || this.primitive === 'redis') return 0;
    const expired: string[] = [];
    for await (const [key] of iterator.call(this.#keyv, this.#keyv.namespace)) {
      const at = expiryOf(key);
      if (at !== undefined && at + MARGIN < this.#clock.now()) expired.push(key);
    }
    for (const key of expired) await remove(this.#keyv, key);
    return expired.length;
  }

  #lifetime(expires: number): number {
    return Math.max(expires - this.#clock.now(), 0) + MARGIN;
  }
}

/** Keyv's encoder calls whatever is named `toJSON`, also where it is an argument that a client sent. */
function wrapped(entry: Entry): unknown {
  const text = JSON.stringify(entry);
  return text.includes('"toJSON"') ? { text } : entry;
}

function unwrapped(found: unknown): unknown {
  return isObject(found) && typeof found.text === 'string' ? JSON.parse(found.text) : found;
}

function keyOf(callId: string, position: number): string {
  return `${PREFIX}${callId}:${position}`;
}

/** The expiry that a key tells: `mcp-await:<milliseconds in base 36>.<random>…` */
function expiryOf(key: string): number | undefined {
  const start = key.lastIndexOf(PREFIX);
  const match = start < 0 ? null : /^([0-9a-z]+)\./.exec(key.slice(start + PREFIX.length));
  return match?.[1] === undefined ? undefined : Number.parseInt(match[1], 36);
}
