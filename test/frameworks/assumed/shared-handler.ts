/** A handler whose processes share a SQLite file (STORE) and a secret. */
import process from 'node:process';
import KeyvSqlite from '@keyv/sqlite';
import Keyv from 'keyv';
import { createAwaitHandler as create } from 'mcp-await';

export const createAwaitHandler: typeof create = (factory, options) =>
  create(factory, {
    store: new Keyv(new KeyvSqlite(`sqlite://${process.env.STORE}`)),
    secrets: ['the secret of the mounts, which is longer than 32 bytes'],
    ...options,
  });
