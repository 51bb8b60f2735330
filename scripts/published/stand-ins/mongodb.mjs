// Loaded before mongodb-mcp-server: a database driver that has every collection, and drops and deletes nothing.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';

const require = createRequire(join(process.cwd(), 'package.json'));
const { NodeDriverServiceProvider } = require('@mongosh/service-provider-node-driver');
const RESULTS = {
  dropCollection: true,
  dropDatabase: { ok: 1, dropped: 'shop' },
  deleteMany: { acknowledged: true, deletedCount: 2 },
  getSearchIndexes: [],
};
const CURSOR = { toArray: async () => [], close: async () => {} };
NodeDriverServiceProvider.connect = async () =>
  new Proxy(
    {},
    {
      get: (_driver, name) => {
        if (name === 'then') return undefined;
        return /^aggregate/.test(String(name)) ? () => CURSOR : async () => RESULTS[name] ?? { ok: 1 };
      },
    },
  );
