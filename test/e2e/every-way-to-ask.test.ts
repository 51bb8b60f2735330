/** Every way to ask, for a client of each revision, on one endpoint at the same time (issue, 1 and 2). */
import { afterEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { legacy, messagesIn, modern, type TestClient } from './clients.ts';
import { asking, type Balancer, balance, CELLS, optionsOf, type Served, serveHere } from './harness.ts';
import { TOOLS } from './tools.ts';

let served: Served;
let client: TestClient;
afterEach(async () => {
  await client.close();
  await served.close();
});

for (const [revision, connect] of [
  ['2026-07-28', modern],
  ['2025-11-25', legacy],
] as const) {
  describe.each(CELLS)(`a client of ${revision} ($name)`, (cell) => {
    const start = async (): Promise<void> => {
      served = await serveHere(() => buildServer(() => {}), optionsOf(cell));
      client = await connect(served.url);
    };

    it.each(TOOLS)('calls %s', async (tool, text, asked) => {
      await start();
      expect(await client.tool(tool)).toBe(text);
      expect([...client.asked].sort()).toEqual([...asked].sort());
    });

    it('gets a prompt and reads a resource that ask', async () => {
      await start();
      expect(await client.prompt('greet')).toBe('Greet its name');
      expect(await client.resource('diary://today')).toBe('Dear its name');
      expect(client.asked).toEqual(['name?', 'name?']);
    });
  });
}

describe.each(CELLS)('on the wire of 2026-07-28 ($name)', (cell) => {
  let balancer: Balancer;
  const start = async (): Promise<void> => {
    served = await serveHere(() => buildServer(() => {}), optionsOf(cell));
    balancer = await balance([served.url]);
    client = await modern(balancer.url);
  };
  const rounds = () =>
    asking(balancer.posts).map(({ reply }) => {
      const { inputRequests } = messagesIn(reply).at(-1)?.result ?? {};
      return Object.values(inputRequests ?? {}).map(({ params }) => params?.message);
    });
  afterEach(() => balancer.close());

  it('three questions that are open at once go out in one round', async () => {
    await start();
    await client.tool('at-once');
    expect(rounds()).toEqual([['name?', 'city?', 'street?'], []]);
  });

  it('three in sequence go out in three', async () => {
    await start();
    await client.tool('in-turn');
    expect(rounds()).toEqual([['name?'], ['city?'], ['street?'], []]);
  });

  it('a link has its URL, and no elicitationId', async () => {
    await start();
    await client.tool('link');
    const asks = asking(balancer.posts).flatMap(({ reply }) =>
      Object.values(messagesIn(reply).at(-1)?.result?.inputRequests ?? {}),
    );
    expect(asks).toEqual([
      {
        method: 'elicitation/create',
        params: { mode: 'url', message: 'open it', url: 'https://example.com/pay' },
      },
    ]);
  });
});

it('a 2025-11-25 client asked to open a link gets an elicitationId', async () => {
  const ids: unknown[] = [];
  served = await serveHere(() => buildServer(() => {}));
  client = await legacy(served.url, {
    answer: ({ elicitationId }) => {
      ids.push(elicitationId);
      return { action: 'accept' };
    },
  });
  expect(await client.tool('link')).toBe('link: accept');
  expect(ids).toEqual(['pay-1']);
});

it('clients of both revisions call at the same time, many calls at once', async () => {
  served = await serveHere(() => buildServer(() => {}));
  client = await legacy(served.url);
  const other = await modern(served.url);
  const calls = Array.from({ length: 10 }, (_, nth) => (nth % 2 === 0 ? client : other)).flatMap((caller) =>
    TOOLS.map(async ([tool, text]) => [await caller.tool(tool), text]),
  );
  for (const [got, wanted] of await Promise.all(calls)) expect(got).toBe(wanted);
  await other.close();
});
