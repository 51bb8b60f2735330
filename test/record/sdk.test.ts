/** A server on the SDK, whose call is in another process each turn: as a tool's author has it. */
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { modern } from '../e2e/clients.ts';
import { balance, listen, SECRET, scratch, serveHere, shut, spawnServers } from '../e2e/harness.ts';
import build from '../fixtures/recording-server.ts';

const received: string[] = [];
const upstream = createServer(async (req, res) => {
  for await (const chunk of req) received.push(String(chunk));
  res.end(`number ${received.length}`);
});
let origin = '';

beforeAll(async () => {
  origin = await listen(upstream);
  vi.stubEnv('UPSTREAM', origin);
});
beforeEach(() => {
  received.length = 0;
});
afterAll(() => shut(upstream));

/** Orders through a balancer; each question is asked once, and matches the order's outcome. */
async function order(urls: readonly string[]): Promise<void> {
  const { url, posts, close } = await balance(urls);
  const client = await modern(url);
  const text = await client.tool('order', {});
  expect(client.asked).toEqual([`Buy ${text}?`, expect.stringMatching(/^Sure, at 0\.\d+\?$/)]);
  expect([...received].sort()).toEqual(['jam', 'tea']);
  const calls = posts.filter(({ request }) => request.method === 'tools/call');
  expect(new Set(calls.map(({ to }) => to)).size).toBe(2);
  await client.close();
  await close();
}

describe('a server that imports mcp-await/record', () => {
  it('asks, draws and sends once, in the token of two handlers, and is not warned of', async () => {
    const options = { state: 'sealed', secrets: [SECRET], limits: { frames: 0 } } as const;
    const served = await Promise.all([serveHere(build, options), serveHere(build, options)]);
    await order(served.map(({ url }) => url));
    expect(served.flatMap(({ log }) => log.lines)).toEqual([]);
    for (const one of served) await one.close();
  });

  it('and in two processes, whose command line is another copy of this package', async () => {
    const args = ['--store', `sqlite://${join(scratch(), 'calls.db')}`];
    const servers = await spawnServers('recording-server.ts', 2, { args, env: { UPSTREAM: origin } });
    await order(servers.map(({ url }) => url));
    for (const server of servers) expect(server.stderr()).not.toContain('outside of a step');
    for (const server of servers) await server.kill();
  });
});
