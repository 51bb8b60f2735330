/** Equal calls that begin at one moment, each of which asks: the one that is answered goes on. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { step } from '../../src/index.ts';
import { linkIn, PersonAtPage } from './person.ts';
import { cleanUp, connected, serveTwo } from './two.ts';

const ann = new PersonAtPage();
let begun: string[] = [];
let many = 2;

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', {}, async () => {
    await step('hold', async () => void begun.push('hold'));
    // No equal call is there to be continued before both have begun.
    for (let look = 0; begun.length < many && look < 1_000; look += 1) await sleep(20);
    const requestedSchema = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
    const { content } = await server.server.elicitInput({ message: 'When?', requestedSchema });
    await step('pay', async () => void begun.push('pay'));
    return { content: [{ type: 'text', text: `booked for ${content?.day}` }] };
  });
  return server;
}

afterEach(cleanUp);

async function book(client: Client | undefined): Promise<string> {
  const { content } = (await client?.callTool({ name: 'book' })) ?? {};
  return (content as { text: string }[]).map(({ text }) => text).join('\n');
}

it.each([0, 1])('of two, that with link %i is answered', async (answered) => {
  begun = [];
  many = 2;
  const both = await serveTwo(build);
  const clients = await Promise.all(both.map((at) => connected(at, {}, () => ({ action: 'cancel' }))));
  const links = (await Promise.all(clients.map(book))).map(linkIn);
  expect(new Set(links).size).toBe(2);
  const [at] = both;
  expect((await ann.answer(at.url, links[answered] ?? '', { day: 'Monday' })).status).toBe(303);
  expect(await book(clients[1])).toBe('booked for Monday');
  expect(begun).toEqual(['hold', 'hold', 'pay']);
  // The other one waits, and is not what a repeated request gets while the reply may have been lost.
  const again = await book(clients[0]);
  expect(again).toMatch(/already done.*\nbooked for Monday/);
  expect((await ann.answer(at.url, links[1 - answered] ?? '', { day: 'Friday' })).status).toBe(303);
  expect(await book(clients[0])).toBe('booked for Friday');
});

it('of fourteen, each that is answered', async () => {
  begun = [];
  many = 14;
  const both = await serveTwo(build);
  const clients = await Promise.all(
    Array.from({ length: many }, (_, nth) =>
      connected(both[nth % 2] ?? both[0], {}, () => ({ action: 'cancel' })),
    ),
  );
  const links = (await Promise.all(clients.map(book))).map(linkIn);
  expect(new Set(links).size).toBe(many);
  for (const [nth, link] of links.entries())
    expect((await ann.answer(both[0].url, link, { day: `day ${nth}` })).status).toBe(303);
  const said = new Set<string>();
  for (const client of clients) said.add(await book(client));
  expect([...said].sort()).toEqual(links.map((_, nth) => `booked for day ${nth}`).sort());
});
