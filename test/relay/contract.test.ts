/** What every relay must do, each on its real server. */
import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import type { Relay } from '../../src/call/ports.ts';
import { createAwaitHandler, memoryRelay } from '../../src/index.ts';
import { natsRelay } from '../../src/relay/nats.ts';
import { openRelay } from '../../src/relay/open-relay.ts';
import { type RedisLike, redisRelay } from '../../src/relay/redis.ts';
import { SECRET } from '../e2e/harness.ts';
import { NATS, NATS_URL, REDIS, REDIS_URL } from '../e2e/services.ts';
import { buildServer } from '../fixtures/asking-server.ts';

const shared = memoryRelay();

interface Kind {
  readonly name: string;
  readonly down: boolean;
  /** A relay as a process of its own would make it. */
  readonly make: () => Relay;
}

const RELAYS: readonly Kind[] = [
  { name: 'memory', down: false, make: () => shared },
  { name: REDIS.name, down: REDIS.down, make: () => redisRelay(REDIS_URL) },
  { name: NATS.name, down: NATS.down, make: () => natsRelay(NATS_URL) },
];

async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; !condition(); tries += 1) {
    if (tries > 1_000) throw new Error('it never came');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

for (const { name, down, make } of RELAYS) {
  describe.skipIf(down)(`the relay of ${name}`, () => {
    const [one, other] = [make(), make()];
    afterAll(async () => {
      await one.close();
      await other.close();
    });

    it('brings what is sent to the one who listens, in order', async () => {
      const heard: string[] = [];
      const to = randomUUID();
      await one.listen(to, (message) => heard.push(message));
      const sent = Array.from({ length: 100 }, (_, index) => `${index} ü \u2028 ${'x'.repeat(index)}`);
      for (const message of sent) expect(await other.send(to, message)).toBe(true);
      await until(() => heard.length === sent.length);
      expect(heard).toEqual(sent);
    });

    it('goes on to bring it to one who listens where another stops to', async () => {
      const heard: string[] = [];
      const to = randomUUID();
      const stop = await one.listen(to, () => {});
      await one.listen(to, (message) => heard.push(message));
      await stop();
      await other.send(to, 'hello');
      await until(() => heard.length === 1);
    });

    it('delivers it to one listener alone', async () => {
      const heard: string[] = [];
      await one.listen(randomUUID(), (message) => heard.push(message));
      const to = randomUUID();
      const right: string[] = [];
      await other.listen(to, (message) => right.push(message));
      await other.send(to, 'hello');
      await until(() => right.length === 1);
      expect(heard).toEqual([]);
    });

    it('reports when there is no listener, or none any more', async () => {
      const to = randomUUID();
      expect(await one.send(to, 'hello')).toBe(false);
      const stop = await other.listen(to, () => {});
      expect(await one.send(to, 'hello')).toBe(true);
      await stop();
      expect(await one.send(to, 'hello')).toBe(false);
    });

    it('carries messages of 5 MB, two at once', async () => {
      const to = randomUUID();
      const heard: string[] = [];
      await one.listen(to, (message) => heard.push(message));
      const messages = ['ü', '€'].map((text) => text.repeat(5_000_000 / Buffer.byteLength(text)));
      await Promise.all(messages.map((message) => other.send(to, message)));
      await until(() => heard.length === messages.length);
      expect(messages.every((message) => heard.includes(message))).toBe(true);
      expect(await other.send(randomUUID(), messages[0] ?? '')).toBe(false);
    });
  });
}

describe.skipIf(NATS.down)('NATS', () => {
  it('refuses a message that is too long for all of its parts', async () => {
    const relay = natsRelay(NATS_URL);
    const to = randomUUID();
    await relay.listen(to, () => {});
    await expect(relay.send(to, 'x'.repeat(70_000_000))).rejects.toThrow(/70000000 bytes.*67108864/);
    await relay.close();
  });
});

describe('a relay by its URL', () => {
  it('is refused for an unknown kind', async () => {
    await expect(openRelay('amqp://host')).rejects.toThrow(/use redis:\/\/host:port or nats:/);
    expect(() => redisRelay('nats://host')).toThrow(/use redis:/);
    expect(() => natsRelay('redis://host')).toThrow(/use nats:/);
  });

  it('that does not answer fails to send, and does not wait for ever', async () => {
    await expect(openRelay('nats://127.0.0.1:1')).rejects.toMatchObject({ code: 'store' });
    const relay = natsRelay('nats://127.0.0.1:1');
    await expect(relay.send('somebody', 'hello')).rejects.toThrow();
    await relay.close();
  });

  it.each([() => redisRelay('redis://127.0.0.1:1'), () => natsRelay('nats://127.0.0.1:1')])(
    'that never answered lets its handler close',
    async (open) => {
      const handler = createAwaitHandler(() => buildServer(() => {}), { relay: open(), secrets: [SECRET] });
      await handler.close();
      await handler.release();
    },
  );
});

it('messages for a Redis that does not answer fail, once many wait', async () => {
  const waiting: ((receivers: number) => void)[] = [];
  const client: RedisLike = {
    isOpen: true,
    connect: async () => {},
    close: () => {},
    on: () => {},
    publish: () => new Promise((resolve) => waiting.push(resolve)),
    subscribe: async () => {},
    unsubscribe: async () => {},
    duplicate: () => client,
  };
  const relay = redisRelay(client);
  const message = 'x'.repeat(1_048_576);
  const sent: Promise<boolean>[] = [];
  for (let nth = 0; nth < 40; nth += 1) {
    sent.push(relay.send('a', message));
    sent.at(-1)?.catch(() => {});
  }
  await expect(sent.at(-1)).rejects.toThrow('does not take');
  expect(waiting.length).toBeLessThan(40);
  for (const answer of waiting.splice(0)) answer(1);
  await expect(sent[0]).resolves.toBe(true);
  const next = relay.send('a', message);
  await expect.poll(() => waiting.length).toBe(1);
  waiting[0]?.(0);
  expect(await next).toBe(false);
});
