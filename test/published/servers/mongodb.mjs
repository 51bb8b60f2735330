// The server that its stdio runner makes, over a driver that only notes what would be dropped (EFFECTS).
import { appendFileSync } from 'node:fs';
import process from 'node:process';
import { StdioRunner, UserConfigSchema } from 'mongodb-mcp-server';

const driver = {
  dropCollection: async (database, collection) => {
    appendFileSync(process.env.EFFECTS, `${database}.${collection}\n`);
    return true;
  },
};
const connectionRegistry = {
  resolve: async () => driver,
  peek: async () => undefined,
  list: async () => [],
  close: async () => {},
};
const runner = new StdioRunner({
  userConfig: UserConfigSchema.parse({ telemetry: 'disabled', loggers: [] }),
  createAtlasLocalClient: async () => undefined,
});

export default () => runner.createServer({ sessionOptions: { connectionRegistry } });
