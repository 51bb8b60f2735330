/** A process that leaves in the middle of a call of a caller with a person: its client goes on elsewhere, and nothing is done twice. */
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it } from 'vitest';
import { step } from '../../src/index.ts';
import { post, type RawCall, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { askOptions } from './person.ts';

const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

const STEPS = 6;
let done: number[] = [];

function build(): McpServer {
  const server = new McpServer({ name: 'list', version: '1' });
  server.registerTool('list', {}, async () => {
    for (let nth = 0; nth < STEPS; nth += 1)
      await step(`part ${nth}`, async () => {
        done.push(nth);
        await sleep(150);
      });
    return { content: [{ type: 'text', text: 'done' }] };
  });
  return server;
}

it.each([{}, { 'idempotency-key': 'k' }])('on 2026-07-28, with the headers %j', async (own) => {
  done = [];
  const records = new Map<string, string>();
  for (const _ of [0, 1]) {
    const { store } = flakyStore(records);
    const limits = { lease: 1_000, drain: 200 };
    open.push(await serveHere(build, { store, secrets: [SECRET], ask: askOptions, limits }));
  }
  const [leaving, other] = open as [Served, Served];
  const request: RawCall = {
    tool: 'list',
    capabilities: {},
    headers: { authorization: 'Bearer ann', ...own },
  };
  const first = post(leaving.url, request);
  await expect.poll(() => done.length).toBeGreaterThan(1);
  void leaving.handler.close();
  const told = await first;
  expect(told.message.result?.resultType).toBe('input_required');
  expect(told.keys).toEqual([]);
  let reply = told;
  while (reply.message.result?.resultType === 'input_required')
    reply = await post(other.url, { ...request, state: reply.state });
  expect(textOf(reply)).toBe('done');
  expect(done).toEqual(Array.from({ length: STEPS }, (_, nth) => nth));
});
