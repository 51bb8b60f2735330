/**
 * `mcp-await/redis`: processes reach one another over Redis pub/sub (Valkey has the same commands).
 * https://redis.io/docs/latest/develop/pubsub/
 */
import { createClient } from '@redis/client';
import { optionError } from '../base/values.ts';
import type { Relay } from '../call/ports.ts';

const PREFIX = 'mcp-await:relay:';
/** What may wait for a server that does not answer, in characters: later messages fail. */
const MOST = 33_554_432;

/** As much of a client of `redis` or `@redis/client` as is needed here. */
export interface RedisLike {
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  close(): Promise<unknown> | unknown;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  publish(channel: string, message: string): Promise<number>;
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  unsubscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  duplicate(): RedisLike;
}

/**
 * A relay over Redis pub/sub.
 *
 * @param redis `redis://…`, `rediss://…`, or a client, which stays its owner's to close. A client that
 *   subscribes can do nothing else, so it is duplicated.
 * @throws AwaitError `bad-option` for another URL
 *
 * @example
 * import { createAwaitHandler } from 'mcp-await';
 * import { redisRelay } from 'mcp-await/redis';
 * import buildServer from './server.js';
 *
 * const handler = createAwaitHandler(buildServer, { relay: redisRelay('redis://127.0.0.1:6379') });
 */
export function redisRelay(redis: string | RedisLike): Relay {
  if (typeof redis === 'string' && !/^rediss?:\/\//.test(redis)) {
    throw optionError(`redisRelay(${JSON.stringify(redis)}): use redis://host:port`);
  }
  // A message that cannot be sent now is dropped: its call continues without it.
  const publisher =
    typeof redis === 'string'
      ? quiet(createClient({ url: redis, disableOfflineQueue: true }) as RedisLike)
      : redis;
  const isOurs = typeof redis === 'string';
  const subscriber = quiet(publisher.duplicate());
  const opening = new Map<RedisLike, Promise<unknown>>();
  let unsent = 0;
  const open = async (client: RedisLike): Promise<RedisLike> => {
    if (!client.isOpen) opening.set(client, client.connect());
    await opening.get(client);
    return client;
  };
  return {
    async listen(name, hear) {
      const client = await open(subscriber);
      await client.subscribe(PREFIX + name, hear);
      return async () => {
        // With its connection the subscription ends too.
        if (client.isOpen) await client.unsubscribe(PREFIX + name, hear).catch(() => {});
      };
    },
    async send(name, message) {
      if (unsent > MOST) throw new Error('Redis does not take what was sent before');
      unsent += message.length;
      try {
        // The number of receivers; with none, that process has ended and its acknowledgement is not waited for.
        return (await (await open(publisher)).publish(PREFIX + name, message)) > 0;
      } finally {
        unsent -= message.length;
      }
    },
    async close() {
      for (const client of isOurs ? [publisher, subscriber] : [subscriber]) {
        if (client.isOpen) await client.close();
      }
    },
  };
}

/** Ignores failures of an idle connection; each operation reports its own failure. */
function quiet(client: RedisLike): RedisLike {
  client.on('error', () => {});
  return client;
}
