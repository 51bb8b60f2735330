/** The event `expired` of the option `ask`, and the timer that it comes from. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { AskEvent } from '../../src/ask/options.ts';
import { systemClock } from '../../src/base/values.ts';
import { openStore } from '../../src/store.ts';
import { post, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { askOptions, linkIn, PersonAtPage } from './person.ts';

const DAY = 86_400_000;
const ann = new PersonAtPage();
const timers: { fire: () => void; readonly cancel: ReturnType<typeof vi.fn> }[] = [];
let events: AskEvent['what'][] = [];
let url: string;
let served: Served;
const open: Served[] = [];

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: {} };
    const { action } = await server.server.elicitInput({ message: 'Book?', requestedSchema });
    return { content: [{ type: 'text', text: action }] };
  });
  server.registerTool('hurry', {}, async () => {
    const requestedSchema = { type: 'object' as const, properties: {} };
    const asked = server.server.elicitInput({ message: 'Now?', requestedSchema }, { timeout: 800 });
    const text = await asked.then(({ action }) => action).catch(() => 'too late');
    return { content: [{ type: 'text', text }] };
  });
  return server;
}

async function serve(on: (event: AskEvent) => void, ttl = 60 * DAY): Promise<Served> {
  const store = await openStore(url);
  const one = await serveHere(build, { secrets: [SECRET], store, ttl, ask: { ...askOptions, on } });
  open.push(one);
  return one;
}

beforeEach(async () => {
  timers.length = 0;
  events = [];
  const after = systemClock.after;
  vi.spyOn(systemClock, 'after').mockImplementation((milliseconds, fn) => {
    if (milliseconds < 20 * DAY) return after(milliseconds, fn);
    const cancel = vi.fn();
    timers.push({ fire: fn, cancel });
    const timer = { cancel, unref: () => timer };
    return timer;
  });
  url = SQLITE.url();
  served = await serve(({ what }) => void events.push(what));
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
  vi.restoreAllMocks();
});

const call = async (tool = 'book'): Promise<string> =>
  textOf(await post(served.url, { tool, capabilities: {}, headers: { authorization: 'Bearer ann' } }));

it('ends the request that waits for the person', async () => {
  const brief = await serve(() => {}, 2_500);
  const sent = { tool: 'book', capabilities: {}, headers: { authorization: 'Bearer ann' } };
  expect(textOf(await post(brief.url, sent))).toMatch(/^NOT DONE YET/);
  const { message } = await post(brief.url, sent);
  expect(JSON.stringify(message.error)).toMatch(/This call has expired.*"retry":false/);
});

it('does not come before its time where that is longer than the longest timer', async () => {
  const link = linkIn(await call());
  expect(timers).toHaveLength(1);
  timers[0]?.fire();
  expect(timers).toHaveLength(2);
  expect(await ann.read(served.url, link)).toContain('Book?');
  expect(events).toEqual(['opened']);
});

it('comes at the time that the tool gave its question', async () => {
  expect(await call('hurry')).toMatch(/^NOT DONE YET/);
  await expect.poll(() => events).toEqual(['opened', 'expired']);
  expect(await call('hurry')).toBe('too late');
  expect(events).toEqual(['opened', 'expired']);
});

it('does not come where the question was answered in time, in another process', async () => {
  const link = linkIn(await call('hurry'));
  const other = await serve(() => {});
  expect((await ann.answer(other.url, link, {}, 'decline')).status).toBe(303);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(await call('hurry')).toBe('decline');
  expect(events).toEqual(['opened']);
});

it('has no timer once the call has its answer', async () => {
  const link = linkIn(await call());
  expect(timers.map(({ cancel }) => cancel.mock.calls.length)).toEqual([0]);
  await ann.answer(served.url, link, {});
  expect(timers.map(({ cancel }) => cancel.mock.calls.length)).toEqual([1]);
  expect(await call()).toBe('accept');
  expect(timers).toHaveLength(1);
});

it('has no timer once the call has ended by an answer in another process', async () => {
  const link = linkIn(await call());
  const other = await serve(() => {});
  await ann.answer(other.url, link, {}, 'decline');
  expect(timers.map(({ cancel }) => cancel.mock.calls.length)).toEqual([0]);
  expect(await call()).toBe('decline');
  expect(timers.map(({ cancel }) => cancel.mock.calls.length)).toEqual([1]);
});
