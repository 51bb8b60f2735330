/**
 * The operation that every store must have: insert if absent, in Keyv's own keyspace and encoding, through each
 * adapter's client. Keyv itself has no compare-and-set.
 *
 * Each operation runs Keyv's own code on an object derived from the user's Keyv, whose innermost adapter is replaced
 * for that one operation. So the key's prefix, the encoding and the compression are Keyv's, in version 5 and 6, and
 * failures are seen that Keyv turns into `undefined` or `false` (it does so as soon as it has an `error` listener).
 */
import type Keyv from 'keyv';
import { AwaitError, memoryOf } from '../base/values.ts';
import { inTime, PATIENCE } from './in-time.ts';
import { oneByOne, tableOf } from './table.ts';

/** A method of an adapter: an operation failed, so its connection may be silent, or may not write any more. */
export const FAILED = Symbol('failed');

/** The methods of a Keyv adapter that are used here: of Keyv's own `Map`, or of one of its packages. */
interface Adapter {
  get(key: string): unknown;
  set(key: string, value: unknown, ...rest: unknown[]): unknown;
  delete(key: string): unknown;
  getMany?(keys: string[]): unknown;
  deleteMany?(keys: string[]): unknown;
  [FAILED]?(): void;
  readonly _store?: unknown;
}

interface RedisAdapter extends Adapter {
  readonly namespace?: string;
  getClient(): Promise<{
    set(key: string, value: unknown, options: { NX: true; PX: number }): Promise<unknown>;
    /** @returns seconds since the epoch, and microseconds */
    time(): Promise<[unknown, unknown]>;
  }>;
  createKeyPrefix(key: string, namespace?: string): string;
}

/** An adapter from elsewhere that has the primitive as a method of its own. */
interface InsertingAdapter extends Adapter {
  /** @returns whether it was inserted; false means that a value was there already */
  insertIfAbsent(key: string, value: unknown): Promise<boolean>;
}

export type Primitive = 'map' | 'sqlite' | 'postgres' | 'redis' | 'own' | 'none';

type RecordWrite = (key: string, value: unknown) => boolean | Promise<boolean>;

/** Which primitive the adapter behind a Keyv has. */
export function primitiveOf(keyv: Keyv): Primitive {
  const adapter = innermost(keyv);
  if (adapter instanceof Map) return 'map';
  if ('insertIfAbsent' in adapter && typeof adapter.insertIfAbsent === 'function') return 'own';
  if (isRedis(adapter)) return 'redis';
  return tableOf(adapter)?.dialect ?? 'none';
}

/**
 * Inserts `value` if the key is absent.
 * @param lifetime milliseconds until the store may delete it by its own clock, where it can
 * @param wait how long the store may take, in milliseconds
 * @param sized called with the bytes that it takes, as estimated, before they are written; if it throws, nothing is
 * written and the error is thrown on
 * @returns whether it was inserted; false means that the key has a value already
 * @throws AwaitError `store` when the adapter failed: the value may or may not be there
 */
export async function insertIfAbsent(
  keyv: Keyv,
  key: string,
  value: unknown,
  lifetime: number,
  wait = PATIENCE,
  sized?: (bytes: number) => void,
): Promise<boolean> {
  const adapter = innermost(keyv);
  const write = writerFor(keyv, adapter, lifetime, wait);
  let inserted: boolean | undefined;
  const note = (written: boolean): boolean => {
    inserted = written;
    return written;
  };
  let refused: { readonly error: unknown } | undefined;
  const set: RecordWrite = (fullKey, encoded) => {
    try {
      sized?.(memoryOf(encoded));
    } catch (error) {
      refused = { error };
    }
    const written = refused === undefined && write(fullKey, encoded);
    return typeof written === 'boolean' ? note(written) : written.then(note);
  };
  await watched(keyv, 'write', key, wait, (derived) => derived.set(key, value), set);
  if (refused !== undefined) throw refused.error;
  if (inserted === undefined) throw new AwaitError('store', `the store did not write ${key}`);
  return inserted;
}

/**
 * Overwrites a value, with `lifetime` (milliseconds) as Keyv's own expiry. For records that may be lost.
 * @throws AwaitError `store` when the adapter failed
 */
export async function overwrite(
  keyv: Keyv,
  key: string,
  value: unknown,
  lifetime: number,
  wait = PATIENCE,
): Promise<void> {
  await watched(keyv, 'write', key, wait, (derived) => derived.set(key, value, lifetime));
}

/** @throws AwaitError `store` when the adapter failed; `undefined` is a sure miss */
export function read(keyv: Keyv, key: string, wait = PATIENCE): Promise<unknown> {
  return watched(keyv, 'read', key, wait, (derived) => derived.get(key));
}

/**
 * Several reads, as one where the adapter can.
 * @throws AwaitError `store` when the adapter failed; `undefined` is a sure miss
 */
export function readAll(keyv: Keyv, keys: readonly string[], wait = PATIENCE): Promise<unknown[]> {
  const adapter = innermost(keyv);
  // Keyv itself takes a failure for a miss where the adapter reads one key at a time.
  if (typeof adapter.getMany !== 'function') return Promise.all(keys.map((key) => read(keyv, key, wait)));
  const [first = ''] = keys;
  return watched(keyv, 'read', first, wait, (derived) => derived.getMany([...keys]));
}

/**
 * Deletes records, in one command where the adapter can. It does not report whether there were any, since the SQL
 * adapters do not know for sure.
 */
export async function remove(keyv: Keyv, keys: readonly string[], wait = PATIENCE): Promise<void> {
  const adapter = innermost(keyv);
  const [first = ''] = keys;
  if (keys.length > 1 && typeof adapter.deleteMany === 'function') {
    await watched(keyv, 'delete', first, wait, (derived) => derived.deleteMany([...keys]));
    return;
  }
  for (const key of keys) await watched(keyv, 'delete', key, wait, (derived) => derived.delete(key));
}

/**
 * The clock of a store that several hosts may share, in milliseconds since the epoch; undefined for others.
 * @throws AwaitError `store` when the adapter failed
 */
export function timeOf(keyv: Keyv, wait: number): Promise<number | undefined> {
  const adapter = innermost(keyv);
  return watched(keyv, 'read', 'its clock', wait, async () => {
    if (!isRedis(adapter)) return tableOf(adapter)?.time();
    const [seconds, micros] = await (await adapter.getClient()).time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  });
}

function writerFor(keyv: Keyv, adapter: Adapter, lifetime: number, wait: number): RecordWrite {
  const table = tableOf(adapter);
  if (table !== undefined) return table.insert;
  switch (primitiveOf(keyv)) {
    case 'redis':
      return async (key, value) => {
        const redis = adapter as RedisAdapter;
        const client = await redis.getClient();
        const full = redis.createKeyPrefix(key, redis.namespace);
        return (await client.set(full, value, { NX: true, PX: Math.ceil(lifetime) })) === 'OK';
      };
    case 'map':
      return (key, value) => {
        const map = adapter as unknown as Map<string, unknown>;
        if (map.has(key)) return false;
        // Keyv 5 builds its text piece by piece, which V8 keeps as a tree of pieces, five times as large:
        // looking at a character makes it one string.
        if (typeof value === 'string') value.charCodeAt(0);
        map.set(key, value);
        return true;
      };
    case 'own':
      return (key, value) => (adapter as InsertingAdapter).insertIfAbsent(key, value);
    default:
      return exclusive(adapter, wait);
  }
}

/** Adapters without the primitive: one after the other in this process, and nothing more. */
const chains = new WeakMap<object, ReturnType<typeof oneByOne>>();

function exclusive(adapter: Adapter, wait: number): RecordWrite {
  const chain = chains.get(adapter) ?? oneByOne();
  chains.set(adapter, chain);
  return (key, value) => {
    const insert = async (): Promise<boolean> => {
      const present = await adapter.get(key);
      if (present !== undefined && present !== null) return false;
      await adapter.set(key, value);
      return true;
    };
    return chain(() => inTime(insert(), wait));
  };
}

/** An operation on a Keyv of its own, without Keyv's own expiry, which keeps the adapter's exception. */
async function watched<T>(
  keyv: Keyv,
  verb: string,
  key: string,
  wait: number,
  operate: (derived: Keyv) => Promise<T>,
  write?: RecordWrite,
): Promise<T> {
  const adapter = innermost(keyv);
  const operation: Operation = { write, failure: undefined };
  const stand: Stand = Object.create(standOf(adapter));
  stand[OPERATION] = operation;
  const fail = (error: unknown): never => {
    adapter[FAILED]?.();
    throw new AwaitError('store', `the store failed to ${verb} ${key}`, operation.failure ?? error);
  };
  const made = operate(derive(keyv, stand));
  const result = await (adapter instanceof Map ? made : inTime(made, wait)).catch(fail);
  return operation.failure === undefined ? result : fail(undefined);
}

/** What one operation does in place of the adapter's `set`, and why it failed. */
interface Operation {
  readonly write: RecordWrite | undefined;
  failure: unknown;
}

const OPERATION = Symbol('operation');

interface Stand extends Adapter {
  [OPERATION]: Operation;
}

/** What stands in for an adapter; each operation has an object of its own, derived from it. */
const stands = new WeakMap<object, object>();

function standOf(adapter: Adapter): object {
  const known = stands.get(adapter);
  if (known !== undefined) return known;
  // Its failures are thrown, and a table's operations go together: @keyv/redis turns failures into `undefined`, unless
  // this flag is set.
  const stern: Adapter =
    adapter instanceof Map
      ? adapter
      : (tableOf(adapter) ?? Object.create(adapter, { _throwOnErrors: { value: true } }));
  const methods: Record<string, (this: Stand, ...args: never[]) => unknown> = {
    get(fullKey: string) {
      return watch(this, () => stern.get(fullKey));
    },
    set(fullKey: string, value: unknown, ...rest: unknown[]) {
      const { write } = this[OPERATION];
      return watch(this, () => write?.(fullKey, value) ?? stern.set(fullKey, value, ...rest));
    },
    delete(fullKey: string) {
      return watch(this, () => stern.delete(fullKey));
    },
    ...(stern.deleteMany !== undefined && {
      deleteMany(fullKeys: string[]) {
        return watch(this, () => stern.deleteMany?.(fullKeys));
      },
    }),
    ...(stern.getMany !== undefined && {
      getMany(fullKeys: string[]) {
        return watch(this, () => stern.getMany?.(fullKeys));
      },
    }),
  };
  const stand: object = Object.create(adapter instanceof Map ? Object.prototype : adapter);
  for (const [name, value] of Object.entries(methods)) Object.defineProperty(stand, name, { value });
  stands.set(adapter, stand);
  return stand;
}

function watch(stand: Stand, act: () => unknown): unknown {
  const fail = (error: unknown): never => {
    stand[OPERATION].failure = error ?? new Error('unknown failure');
    throw error;
  };
  try {
    const result = act();
    // Keyv 6 calls a Map's methods without awaiting them.
    return result instanceof Promise ? result.catch(fail) : result;
  } catch (error) {
    return fail(error);
  }
}

/** The members of a Keyv that decide where its records go; Keyv 5 reads them in `opts`. */
interface KeyvParts {
  _store: Adapter;
  _ttl: unknown;
  opts?: object;
}

/** Keyv 6 may hold an adapter in a bridge of its own; Keyv 5 never does. */
function derive(keyv: Keyv, stand: Adapter): Keyv {
  const { _store: outer, opts } = keyv as unknown as KeyvParts;
  const bridged = bridge(outer) !== undefined;
  const store = bridged ? Object.create(outer, { _store: { value: stand } }) : stand;
  const own: KeyvParts = { _store: store, _ttl: undefined };
  if (opts !== undefined) own.opts = Object.assign(Object.create(opts), { store, ttl: undefined });
  return Object.assign(Object.create(keyv), own);
}

function innermost(keyv: Keyv): Adapter {
  const outer = (keyv as unknown as { _store: Adapter })._store;
  return bridge(outer) ?? outer;
}

function bridge(outer: Adapter): Adapter | undefined {
  const inner = outer instanceof Map ? undefined : outer._store;
  const isAdapter = typeof inner === 'object' && inner !== null && 'get' in inner && 'set' in inner;
  return isAdapter ? (inner as Adapter) : undefined;
}

function isRedis(adapter: Adapter): adapter is RedisAdapter {
  return 'getClient' in adapter && 'createKeyPrefix' in adapter;
}
