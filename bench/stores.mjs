/** The stores that benchmarks run on. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStore } from '../dist/src/checkpoint/open-store.js';

const URLS = {
  redis: () => process.env.REDIS_URL ?? 'redis://127.0.0.1:6379',
  postgres: () => process.env.POSTGRES_URL ?? 'postgres://postgres@127.0.0.1:5432/test',
  sqlite: () => `sqlite://${join(mkdtempSync(join(tmpdir(), 'mcp-await-bench-')), 'calls.db')}`,
};

/** @param name `memory`, `redis`, `postgres` or `sqlite`; in memory there is no store to open */
export const storeNamed = async (name) => (name === 'memory' ? undefined : openStore(URLS[name]()));
