/** Requests to the page that come at once, of anybody, and while there is nothing to open a link with. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, expect, it, vi } from 'vitest';
import { createAwaitHandler } from '../../src/index.ts';
import { SECRET } from '../e2e/harness.ts';
import { countTurns, mostInOne } from '../loop-turns.ts';
import { askOptions, PAGE } from './person.ts';

const build = (): McpServer => new McpServer({ name: 'booking', version: '1' });
const MANY = 200;
const many = <T>(make: (nth: number) => T): T[] => Array.from({ length: MANY }, (_, nth) => make(nth));

afterEach(() => vi.unstubAllGlobals());

it('are a few in each turn of the event loop', async () => {
  const turns = countTurns();
  const served: number[] = [];
  const authorize = (): undefined => void served.push(turns.now);
  const handler = createAwaitHandler(build, { secrets: [SECRET], ask: { ...askOptions, authorize } });
  const replies = await Promise.all(many(() => handler.fetch(new Request(`${PAGE}/x`))));
  turns.stop();
  expect(replies.map(({ status }) => status)).toEqual(many(() => 403));
  expect(served).toHaveLength(MANY);
  expect(mostInOne(served)).toBeLessThanOrEqual(16);
  await handler.close();
});

it('have their forms read a few in each turn, those of their own questions alone', async () => {
  const turns = countTurns();
  const read: number[] = [];
  class Counted extends URLSearchParams {
    constructor(init?: ConstructorParameters<typeof URLSearchParams>[0]) {
      super(init);
      if (String(init).length > 40_000) read.push(turns.now);
    }
  }
  const handler = createAwaitHandler(build, { secrets: [SECRET], ask: askOptions });
  const body = `field.day=${'x'.repeat(50_000)}`;
  const headers = {
    origin: new URL(PAGE).origin,
    'content-type': 'application/x-www-form-urlencoded',
  };
  const requests = many(
    (nth) =>
      new Request(`${PAGE}/x`, { method: 'POST', body, headers: { ...headers, 'x-person': `p${nth}` } }),
  );
  vi.stubGlobal('URLSearchParams', Counted);
  const replies = await Promise.all(requests.map((request) => handler.fetch(request)));
  turns.stop();
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([404]));
  expect(mostInOne(read)).toBeLessThanOrEqual(4);
  await handler.close();
});

it('say of a link that cannot be opened for want of secrets that it cannot be shown now', async () => {
  const handler = createAwaitHandler(build, {
    secrets: () => Promise.reject(new Error('the vault is sealed')),
    ask: askOptions,
    logger: { debug() {}, info() {}, warn() {}, error() {} },
  });
  const reply = await handler.fetch(new Request(`${PAGE}/x`, { headers: { 'x-person': 'ann' } }));
  expect(reply.status).toBe(503);
  expect(await reply.text()).toContain('This page cannot be shown now');
  await handler.close();
});

it('get the response of a login also where the server has replaced the global class', async () => {
  const theirs = Response;
  vi.stubGlobal('Response', class extends Response {});
  let login: unknown = theirs.redirect('https://login.example/');
  const authorize = () => login as Response;
  const handler = createAwaitHandler(build, { secrets: [SECRET], ask: { ...askOptions, authorize } });
  const { status, headers } = await handler.fetch(new Request(`${PAGE}/x`));
  expect([status, headers.get('location')]).toEqual([302, 'https://login.example/']);
  login = null;
  expect((await handler.fetch(new Request(`${PAGE}/x`))).status).toBe(403);
  await handler.close();
});
