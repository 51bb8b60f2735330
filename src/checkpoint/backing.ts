/**
 * Where records are: in the user's Keyv, under names and in a form that anyone may see, or in a Map of this process,
 * which no other process reads, so that a record needs neither.
 */
import type Keyv from 'keyv';
import { AwaitError, isObject, type JsonObject, memoryOf } from '../base/values.ts';
import {
  insertIfAbsent,
  overwrite,
  type Primitive,
  primitiveOf,
  read,
  readAll,
  remove,
  timeOf,
} from './insert.ts';
import { keyAt, type Names, readName } from './names.ts';
import type { RecordCipher } from './records.ts';

/** A record that is listed, by the key of the backing. */
export interface ListedKey {
  readonly key: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
}

export interface Backing {
  readonly primitive: Primitive;
  /** Whether its keys can be listed. */
  readonly canList: boolean;
  /**
   * @param lifetime milliseconds until the store may delete the record by its own clock, where it can
   * @param sized called with the bytes that it takes, as estimated, before they are written; if it throws, nothing is
   * written
   * @returns false where there is a record already
   * @throws AwaitError `store`, from here and all below
   */
  insert(name: string, value: unknown, lifetime: number, sized?: (bytes: number) => void): Promise<boolean>;
  /** Overwrites a record that may be lost. */
  replace(name: string, value: unknown, lifetime: number): Promise<void>;
  get(name: string): Promise<unknown>;
  /** Several records, in one read where the store can. */
  getAll(names: readonly string[]): Promise<unknown[]>;
  /** Deletes records, in one command where the store can. */
  remove(names: readonly string[]): Promise<void>;
  /** The store's own clock: milliseconds since the epoch; undefined where it has none. */
  time(): Promise<number | undefined>;
  keys(): AsyncIterable<ListedKey>;
  removeKeys(keys: readonly string[]): Promise<void>;
  /**
   * The first entries of journals.
   * @param refused called for each one that is left out: another service's, under another secret, or damaged
   */
  firstEntries(refused: (error: unknown) => void): AsyncIterable<JsonObject>;
}

export class KeyvBacking implements Backing {
  readonly primitive: Primitive;
  readonly #keyv: Keyv;
  readonly #names: Names;
  readonly #cipher: RecordCipher;
  readonly #wait: number;

  /** @param wait how long the store may take for an operation, in milliseconds */
  constructor(keyv: Keyv, names: Names, cipher: RecordCipher, wait: number) {
    this.#wait = wait;
    this.primitive = primitiveOf(keyv);
    this.#keyv = keyv;
    this.#names = names;
    this.#cipher = cipher;
  }

  get canList(): boolean {
    return (this.#keyv as ListingAdapter).iterator !== undefined;
  }

  insert(name: string, value: unknown, lifetime: number, sized?: (bytes: number) => void): Promise<boolean> {
    const key = this.#names.key(name);
    return insertIfAbsent(this.#keyv, key, this.#cipher.encode(key, value), lifetime, this.#wait, sized);
  }

  replace(name: string, value: unknown, lifetime: number): Promise<void> {
    const key = this.#names.key(name);
    return overwrite(this.#keyv, key, this.#cipher.encode(key, value), lifetime, this.#wait);
  }

  async get(name: string): Promise<unknown> {
    const key = this.#names.key(name);
    return this.#cipher.decode(key, await read(this.#keyv, key, this.#wait));
  }

  async getAll(names: readonly string[]): Promise<unknown[]> {
    const keys = names.map((name) => this.#names.key(name));
    const found = await readAll(this.#keyv, keys, this.#wait);
    return Promise.all(keys.map((key, nth) => this.#cipher.decode(key, found[nth])));
  }

  remove(names: readonly string[]): Promise<void> {
    return this.removeKeys(names.map((name) => this.#names.key(name)));
  }

  removeKeys(keys: readonly string[]): Promise<void> {
    return remove(this.#keyv, keys, this.#wait);
  }

  time(): Promise<number | undefined> {
    return timeOf(this.#keyv, this.#wait);
  }

  async *keys(): AsyncGenerator<ListedKey> {
    for await (const key of this.#listed()) {
      const expires = readName(key)?.expires;
      if (expires !== undefined) yield { key, expires };
    }
  }

  async *firstEntries(refused: (error: unknown) => void): AsyncGenerator<JsonObject> {
    const labels = new Set<string>();
    for await (const key of this.#listed()) {
      const name = readName(key);
      if (name?.position === 0) labels.add(name.label);
    }
    for (const label of labels) {
      const key = keyAt(label, 0);
      const found = await this.#cipher.decode(key, await read(this.#keyv, key, this.#wait)).catch(refused);
      if (isObject(found)) yield found;
    }
  }

  async *#listed(): AsyncGenerator<string> {
    const { iterator } = this.#keyv as ListingAdapter;
    if (iterator === undefined) throw new AwaitError('store', 'this store cannot list its keys');
    let failed: unknown;
    const fail = (error: unknown): void => {
      failed ??= error;
    };
    // An adapter may end a listing that failed as if it were complete.
    this.#keyv.on('error', fail);
    try {
      for await (const [key] of iterator.call(this.#keyv, this.#keyv.namespace)) yield key;
    } finally {
      this.#keyv.off('error', fail);
    }
    if (failed) throw new AwaitError('store', 'the store failed to list its keys', failed);
  }
}

/** The listing of keys by a Keyv's adapter, if it has one. */
interface ListingAdapter {
  readonly iterator?: (namespace?: string) => AsyncIterable<[string, unknown]>;
}

/** Records are kept as JSON: an object would be shared with the code that wrote it, which may change it later. */
export class MemoryBacking implements Backing {
  readonly primitive = 'map';
  readonly canList = true;
  readonly #records = new Map<string, string>();

  async insert(
    name: string,
    value: unknown,
    _lifetime?: number,
    sized?: (bytes: number) => void,
  ): Promise<boolean> {
    const text = JSON.stringify(value) ?? 'null';
    sized?.(memoryOf(text));
    if (this.#records.has(name)) return false;
    this.#records.set(name, text);
    return true;
  }

  async replace(name: string, value: unknown): Promise<void> {
    this.#records.set(name, JSON.stringify(value) ?? 'null');
  }

  async get(name: string): Promise<unknown> {
    const text = this.#records.get(name);
    return text && JSON.parse(text);
  }

  getAll(names: readonly string[]): Promise<unknown[]> {
    return Promise.all(names.map((name) => this.get(name)));
  }

  remove(names: readonly string[]): Promise<void> {
    return this.removeKeys(names);
  }

  async removeKeys(keys: readonly string[]): Promise<void> {
    for (const key of keys) this.#records.delete(key);
  }

  async time(): Promise<undefined> {}

  async *keys(): AsyncGenerator<ListedKey> {
    for (const key of this.#records.keys()) {
      const expires = Number.parseInt(key, 36);
      if (!Number.isNaN(expires)) yield { key, expires };
    }
  }

  async *firstEntries(): AsyncGenerator<JsonObject> {
    for (const [name, text] of this.#records) if (name.endsWith(':0')) yield JSON.parse(text) as JsonObject;
  }
}
