// The same server, its calls stored in a Durable Object: a turn is run once in all places, and a call can be erased.
import { DurableObject, env } from 'cloudflare:workers';
import Keyv from 'keyv';
import { createAwaitHandler } from 'mcp-await';
import buildServer from './server.js';

/** When a key of mcp-await expires, in milliseconds since 1970: `mcp-await:<that in base 36>.<digest>`. */
const expiryOf = (key: string): number =>
  Number.parseInt(/mcp-await:([0-9a-z]+)\./.exec(key)?.[1] ?? '0', 36);
const HOUR = 3_600_000;

/** The calls of the whole service. */
export class Calls extends DurableObject {
  get(key: string): Promise<unknown> {
    return this.ctx.storage.get(key);
  }

  async set(key: string, value: unknown): Promise<void> {
    await this.ctx.storage.put(key, value);
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + HOUR);
  }

  /** A Durable Object lets no other request in between this read and this write. */
  async insertIfAbsent(key: string, value: unknown): Promise<boolean> {
    if ((await this.ctx.storage.get(key)) !== undefined) return false;
    await this.set(key, value);
    return true;
  }

  delete(key: string): Promise<boolean> {
    return this.ctx.storage.delete(key);
  }

  /** Once an hour what has expired is deleted. */
  override async alarm(): Promise<void> {
    const keys = [...(await this.ctx.storage.list()).keys()];
    for (const key of keys) if (expiryOf(key) < Date.now()) await this.ctx.storage.delete(key);
    if (keys.length > 0) await this.ctx.storage.setAlarm(Date.now() + HOUR);
  }
}

/** A Keyv adapter: `insertIfAbsent` is what keeps a turn from being run twice. */
const calls = () => env.CALLS.get(env.CALLS.idFromName('calls'));
const adapter = {
  get: (key: string) => calls().get(key),
  set: (key: string, value: unknown) => calls().set(key, value),
  insertIfAbsent: (key: string, value: unknown) => calls().insertIfAbsent(key, value),
  delete: (key: string) => calls().delete(key),
  clear: async () => {},
};

const handler = createAwaitHandler(buildServer, {
  store: new Keyv({ store: adapter }),
  secrets: [env.MCP_AWAIT_SECRET],
});

export default { fetch: (request: Request) => handler.fetch(request) };
