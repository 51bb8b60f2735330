/**
 * The table of Keyv's adapters for PostgreSQL and SQLite. Operations of one kind (read, insert, overwrite, delete) that
 * are made at the same time are one statement: one round trip, and for a write one transaction and one sync of the disk.
 */
import { inTime, PATIENCE } from './in-time.ts';

/** The members of `@keyv/postgres` and `@keyv/sqlite` that are used here. */
interface SqlAdapter {
  query(sql: string, ...values: unknown[]): Promise<unknown[]>;
  readonly opts?: { readonly dialect?: string; readonly table?: string; readonly schema?: string };
}

type SqlDialect = 'postgres' | 'sqlite';

/** It stands in for the adapter. */
export interface SqlTable {
  readonly dialect: SqlDialect;
  /** @returns whether it was written; false means that the key has a value already */
  insert(key: string, value: unknown): Promise<boolean>;
  /** @returns undefined for an absent key */
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown): Promise<boolean>;
  delete(key: string): Promise<void>;
  getMany(keys: string[]): Promise<unknown[]>;
  deleteMany(keys: string[]): Promise<unknown>;
  /** Of a server: milliseconds since the epoch. */
  time(): Promise<number | undefined>;
}

interface KeyValue {
  readonly key: string;
  readonly value: unknown;
}

/** Statements of a kind at a time: on PostgreSQL, one that hangs on a lost connection must not hold up the others. */
const LANES = { postgres: 4, sqlite: 1 };
const MOST_OF_KEYS = { operations: 500, characters: Infinity };
const MOST_OF_ROWS = { operations: 64, characters: 1_000_000 };

const tables = new WeakMap<object, SqlTable>();

/** @returns undefined for another adapter; those of Keyv 6 (in beta) have other tables */
export function tableOf(adapter: object): SqlTable | undefined {
  const known = tables.get(adapter);
  if (known !== undefined || !isSql(adapter)) return known;
  const { opts = {} } = adapter;
  // @keyv/sqlite 4 has no `dialect` after construction; it is recognized by the file in its `opts`.
  const dialect = 'db' in opts && opts.dialect !== 'postgres' ? 'sqlite' : opts.dialect;
  if (dialect !== 'sqlite' && dialect !== 'postgres') return undefined;
  const table = open(adapter, dialect);
  tables.set(adapter, table);
  return table;
}

function isSql(adapter: object): adapter is SqlAdapter {
  return 'query' in adapter && typeof adapter.query === 'function' && !('capabilities' in adapter);
}

function open(adapter: SqlAdapter, dialect: SqlDialect): SqlTable {
  const { schema = 'public', table = 'keyv' } = adapter.opts ?? {};
  const isPostgres = dialect === 'postgres';
  const name = isPostgres ? `${schema}.${table}` : table;
  const lanes = LANES[dialect];
  const alone = oneByOne();
  const query = (sql: string, values: readonly unknown[]): Promise<unknown[]> =>
    isPostgres ? adapter.query(sql, values) : alone(() => adapter.query(sql, ...values));
  const byKeys = (verb: string, keys: readonly string[]): Promise<unknown[]> =>
    isPostgres
      ? query(`${verb} FROM ${name} WHERE key = ANY($1)`, [keys])
      : query(`${verb} FROM ${name} WHERE key IN (SELECT value FROM json_each(?))`, [JSON.stringify(keys)]);
  const write = (onConflict: string): SqlTable['insert'] => {
    const writeRow = batched<KeyValue, boolean>({
      lanes,
      most: MOST_OF_ROWS,
      apart: true,
      key: ({ key }) => key,
      characters: ({ value }) => (typeof value === 'string' ? value.length : 0),
      async run(rows) {
        const places = rows.map((_, nth) => (isPostgres ? `($${2 * nth + 1}, $${2 * nth + 2})` : '(?, ?)'));
        const sql = `INSERT INTO ${name} (key, value) VALUES ${places.join(', ')} ON CONFLICT (key) ${onConflict} RETURNING key`;
        const written = await query(
          sql,
          rows.flatMap(({ key, value }) => [key, value]),
        );
        const keys = new Set((written as KeyValue[]).map(({ key }) => key));
        return rows.map(({ key }) => keys.has(key));
      },
    });
    return (key, value) => writeRow({ key, value });
  };
  const ofKeys = { lanes, most: MOST_OF_KEYS, key: (key: string) => key, characters: () => 0 };
  const get = batched<string, unknown>({
    ...ofKeys,
    apart: false,
    async run(keys) {
      const found = (await byKeys('SELECT key, value', keys)) as KeyValue[];
      const values = new Map(found.map(({ key, value }) => [key, value]));
      return keys.map((key) => values.get(key));
    },
  });
  const remove = batched<string, void>({
    ...ofKeys,
    apart: true,
    async run(keys) {
      await byKeys('DELETE', keys);
      return [];
    },
  });
  return {
    dialect,
    insert: write('DO NOTHING'),
    get,
    set: write('DO UPDATE SET value = excluded.value'),
    delete: remove,
    getMany: (keys) => Promise.all(keys.map(get)),
    deleteMany: (keys) => Promise.all(keys.map(remove)),
    async time() {
      if (!isPostgres) return undefined;
      const [row] = await query('SELECT extract(epoch FROM clock_timestamp()) * 1000 AS time', []);
      return Number((row as { time: unknown }).time);
    },
  };
}

/**
 * Runs one statement after the other. The driver of SQLite frees a statement in the event loop, and waits there for
 * whichever other statement runs: for a sync of the disk, or seconds for the lock of another process.
 */
export function oneByOne() {
  let last: Promise<unknown> = Promise.resolve();
  return <T>(run: () => Promise<T>): Promise<T> => {
    const result = last.then(run);
    last = result.catch(() => undefined);
    return result;
  };
}

// --- reads that go together ---

/** Groups operations of one kind: those made in one turn of the event loop, or while a statement runs, are one statement. */

export interface Batches<I, R> {
  /** Statements at a time; operations that are made meanwhile wait for the next one. */
  readonly lanes: number;
  /** Of one statement: so many operations, and so many characters unless it is one operation. */
  readonly most: { readonly operations: number; readonly characters: number };
  /** No two operations of a statement have the same key, and they come in the order of their keys. */
  readonly apart: boolean;
  readonly key: (operation: I) => string;
  readonly characters: (operation: I) => number;
  /** @returns the results, in the order of the operations */
  run(operations: readonly I[]): Promise<readonly R[]>;
}

interface Queued<I, R> {
  readonly operation: I;
  /** When its caller stops waiting, by the monotonic clock. */
  readonly until: number;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/** One operation, as a statement with others or of its own. A statement that fails fails for all of its operations. */
export function batched<I, R>(batches: Batches<I, R>): (operation: I) => Promise<R> {
  let waiting: Queued<I, R>[] = [];
  let busy = 0;
  const drain = async (): Promise<void> => {
    while (waiting.length > 0) {
      const { next, left } = split(waiting, batches);
      waiting = left;
      if (next.length === 0) break;
      try {
        const results = await inTime(batches.run(next.map(({ operation }) => operation)));
        for (const [nth, { resolve }] of next.entries()) resolve(results[nth] as R);
      } catch (error) {
        for (const { reject } of next) reject(error);
      }
    }
    busy -= 1;
  };
  return (operation) =>
    new Promise((resolve, reject) => {
      waiting.push({ operation, until: performance.now() + PATIENCE, resolve, reject });
      if (busy === batches.lanes) return;
      busy += 1;
      // Operations of other calls in this turn of the event loop go with it.
      setImmediate(() => void drain());
    });
}

function split<I, R>(waiting: readonly Queued<I, R>[], { most, apart, key, characters }: Batches<I, R>) {
  const now = performance.now();
  const next: Queued<I, R>[] = [];
  const left: Queued<I, R>[] = [];
  const keys = new Set<string>();
  let sum = 0;
  for (const one of waiting) {
    // Its caller has a time-out error already.
    if (one.until <= now) continue;
    const size = characters(one.operation);
    const isFull = next.length === most.operations || (next.length > 0 && sum + size > most.characters);
    if (isFull || (apart && keys.has(key(one.operation)))) {
      left.push(one);
      continue;
    }
    next.push(one);
    keys.add(key(one.operation));
    sum += size;
  }
  // Two processes that write the same keys in different orders would wait for each other.
  if (apart) next.sort((a, b) => (key(a.operation) < key(b.operation) ? -1 : 1));
  return { next, left };
}
