/** Limits per caller: on new calls, on going on, and on tokens that are not good. */
import { RateLimiterMemory } from 'rate-limiter-flexible';
import { afterEach, expect, it } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, post, type RawReply, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

async function serve(options: AwaitOptions): Promise<string> {
  served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], ...options });
  return served.url;
}

const as = (caller: string) => ({ authorization: `Bearer ${caller}` });
const ask = (url: string, caller: string): Promise<RawReply> =>
  post(url, { tool: 'one', headers: as(caller) });
const wrong = (url: string, caller: string): Promise<RawReply> =>
  post(url, { tool: 'one', state: 'nonsense', headers: as(caller) });
const many = (times: number, what: () => Promise<RawReply>): Promise<number[]> =>
  Promise.all(Array.from({ length: times }, async () => (await what()).status));

it('limits a caller’s new calls, and no other caller’s', async () => {
  const url = await serve({ rateLimit: { calls: { most: 3, per: 60_000 } } });
  const statuses = await many(5, () => ask(url, 'ann'));
  expect(statuses.sort()).toEqual([200, 200, 200, 429, 429]);
  const refused = await ask(url, 'ann');
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(JSON.parse(refused.text)).toMatchObject({
    error: {
      code: -32000,
      message: expect.stringMatching(/^Too many requests; try again in \d+ s$/),
      data: { 'mcp-await': { reason: 'rate-limit', retry: true } },
    },
  });
  expect((await ask(url, 'bob')).status).toBe(200);
  expect(served.handler.counters).toMatchObject({ calls: 4, limitedCalls: 3, limitedResumes: 0 });
});

it('counts requests that continue a call apart from those that begin one', async () => {
  const url = await serve({
    rateLimit: { calls: { most: 1, per: 60_000 }, resumes: { most: 1, per: 60_000 } },
  });
  const { state, keys } = await ask(url, 'ann');
  const again = { tool: 'one', state, responses: accept(keys, { name: 'Ann' }), headers: as('ann') };
  expect(textOf(await post(url, again))).toBe('Hello Ann');
  expect((await post(url, again)).status).toBe(429);
  expect(served.handler.counters).toMatchObject({ resumes: 1, limitedResumes: 1 });
});

it('looks at no more tokens of a caller who keeps sending bad ones, good ones included', async () => {
  const url = await serve({ rateLimit: { badTokens: { most: 2, per: 60_000 } } });
  const { state, keys } = await ask(url, 'ann');
  expect(await many(2, () => wrong(url, 'ann'))).toEqual([200, 200]);
  expect((await wrong(url, 'ann')).status).toBe(429);
  const good = { tool: 'one', state, responses: accept(keys, { name: 'Ann' }), headers: as('ann') };
  expect((await post(url, good)).status).toBe(429);
  expect((await ask(url, 'ann')).status).toBe(200);
  expect((await wrong(url, 'bob')).status).toBe(200);
  expect(served.handler.counters).toMatchObject({ badTokens: 3, limitedBadTokens: 2 });
});

it('counts session ids that are not good', async () => {
  const url = await serve({ rateLimit: { badTokens: { most: 2, per: 60_000 } } });
  const headers = {
    ...as('ann'),
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-session-id': 'nonsense',
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
  const statuses: number[] = [];
  for (let times = 0; times < 3; times += 1) {
    statuses.push((await fetch(url, { method: 'POST', headers, body })).status);
  }
  expect(statuses).toEqual([404, 404, 429]);
});

it('limits callers without a name only where somebody says who they are', async () => {
  const url = await serve({ rateLimit: { calls: { most: 1, per: 60_000 } } });
  expect(await many(3, () => post(url, { tool: 'one' }))).toEqual([200, 200, 200]);
  await served.close();
  const byAddress = await serve({
    rateLimit: { calls: { most: 1, per: 60_000 }, caller: ({ address }) => address },
  });
  expect((await many(3, () => post(byAddress, { tool: 'one' }))).sort()).toEqual([200, 429, 429]);
});

it('lets them in again when the window is over', async () => {
  const url = await serve({ rateLimit: { calls: { most: 1, per: 1_000 } } });
  expect((await ask(url, 'ann')).status).toBe(200);
  expect((await ask(url, 'ann')).status).toBe(429);
  await expect.poll(async () => (await ask(url, 'ann')).status).toBe(200);
});

it('takes a limiter that processes share, and lets everybody in when it fails', async () => {
  const shared = new RateLimiterMemory({ points: 1, duration: 60 });
  const url = await serve({ rateLimit: { calls: shared } });
  await ask(url, 'ann');
  expect((await ask(url, 'ann')).status).toBe(429);
  await served.close();
  const failing = { consume: () => Promise.reject(new Error('no connection')), get: async () => null };
  const open = await serve({ rateLimit: { calls: failing } });
  expect((await ask(open, 'ann')).status).toBe(200);
  expect(served.log.text).toContain('a rate limiter failed');
});

it('does not limit an ordinary caller by default', async () => {
  const url = await serve({});
  expect(new Set(await many(50, () => ask(url, 'ann')))).toEqual(new Set([200]));
});
