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
};
NodeDriverServiceProvider.connect = async () =>
  new Proxy(
    {},
    { get: (_driver, name) => (name === 'then' ? undefined : async () => RESULTS[name] ?? { ok: 1 }) },
  );
