/** A call that goes on for one of its requests: the others hear of it. A task of 2026-07-28 waits as any task does. */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { step } from '../../src/index.ts';
import type { Served } from '../e2e/harness.ts';
import { linkIn, PAGE, PersonAtPage } from './person.ts';
import { cleanUp, connected, request, serveTwo } from './two.ts';

const requestedSchema = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
const FORMS = { elicitation: { form: {} } };
const ann = new PersonAtPage();
const gates = new Map<string, () => void>();

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  const ask = async (message: string, timeout = 86_400_000, by?: string): Promise<string> => {
    const params = { message, requestedSchema, ...(by && { _meta: { 'mcp-await/by': by } }) };
    return server.server
      .elicitInput(params, { timeout })
      .then(({ action, content }) => `${message} ${action} ${content?.day}`, String);
  };
  const said = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  const inputSchema = { wanted: z.enum(['timer', 'time-out', 'person']) };
  server.registerTool('first', { inputSchema }, async ({ wanted }) => {
    const others: Record<typeof wanted, () => Promise<string>> = {
      timer: () => new Promise((resolve) => setTimeout(resolve, 2_000, 'later')),
      'time-out': () => ask('Soon?', 1_500),
      person: () => ask('By a person?', undefined, 'person'),
    };
    return said(await Promise.race([ask('Native?'), others[wanted]()]));
  });
  server.registerTool('again', { inputSchema: { to: z.string() } }, async ({ to }) => {
    const first = await ask('First?');
    await step('long', () => new Promise<void>((resolve) => gates.set(to, resolve)));
    return said(`${first}, ${await ask('Second?')}`);
  });
  server.registerTool('branches', {}, async () => {
    const params = { messages: [], maxTokens: 1 };
    const sampled = server.server.createMessage(params).then(String, () => step('without', () => 'no model'));
    const asked = ask('Form?').then((text) => step('with', () => text));
    return said((await Promise.all([sampled, asked])).join(', '));
  });
  return server;
}

let one: Served;
let two: Served;
beforeEach(async () => {
  [one, two] = await serveTwo(build, { tasks: 'now' });
});
afterEach(cleanUp);

type Call = Parameters<Client['callTool']>[0];

async function textOf(client: Client, call: Call, signal?: AbortSignal): Promise<string> {
  const { content } = await client.callTool(call, undefined, signal && { signal });
  return (content as { text: string }[]).map(({ text }) => text).join('\n');
}

const never = (): Promise<ElicitResult> => new Promise(() => {});
const listed = (): Promise<string> => ann.read(two.url, PAGE);
const linkNow = async (): Promise<string> => /href="(http[^"]*\/ask\/[^"]*)"/.exec(await listed())?.[1] ?? '';

describe('a task of 2026-07-28 whose client does not answer', () => {
  it.each([
    ['timer', 'later'],
    ['time-out', 'timed out'],
    ['person', 'accept Monday'],
  ])('goes on by itself: %s', async (wanted, text) => {
    const call = { name: 'first', arguments: { wanted } };
    const { result } = await request(one, 'tools/call', call, FORMS);
    const taskId = (result as Record<string, unknown> | undefined)?.taskId;
    expect(taskId).toBeTypeOf('string');
    if (wanted === 'person') {
      await expect.poll(listed).toContain('first');
      await expect
        .poll(async () => (await ann.answer(two.url, await linkNow(), { day: 'Monday' })).status)
        .toBe(303);
    }
    await expect
      .poll(async () => JSON.stringify(await request(one, 'tasks/get', { taskId }, FORMS)))
      .toContain(text);
  });
});

it('goes on at another process though its tool asked what the client cannot, and went on from there', async () => {
  const client = await connected(one, {}, never);
  const told = await textOf(client, { name: 'branches' });
  expect((await ann.answer(two.url, linkIn(told), { day: 'Monday' })).status).toBe(303);
  const other = await connected(two, {}, never);
  expect(await textOf(other, { name: 'branches' })).toBe('no model, Form? accept Monday');
});

describe('requests of one idempotency key', () => {
  const _meta = { 'mcp-await/idempotency-key': 'key' };

  it.each(['one process', 'two processes'])(
    'both hear that the tool went on beside its question, in %s',
    async (where) => {
      const call = { name: 'first', arguments: { wanted: 'timer' }, _meta };
      const texts = [one, where === 'one process' ? one : two].map(async (at) =>
        textOf(await connected(at, FORMS, never), call),
      );
      expect(await Promise.all(texts)).toEqual(['later', 'later']);
    },
  );
});

describe.each(['one process', 'two processes'])('a call that was cancelled in a step, in %s', (where) => {
  it('can be answered once it was made again', async () => {
    const call = { name: 'again', arguments: { to: where } };
    const client = await connected(one, {}, never);
    const told = await textOf(client, call);
    await ann.answer(two.url, linkIn(told), { day: 'Monday' });
    const stop = new AbortController();
    const stopped = textOf(client, call, stop.signal).catch(() => 'stopped');
    await expect.poll(() => gates.get(where)).toBeDefined();
    stop.abort();
    expect(await stopped).toBe('stopped');
    const other = where === 'one process' ? client : await connected(two, {}, never);
    const next = textOf(other, call);
    await new Promise((resolve) => setTimeout(resolve, 500));
    gates.get(where)?.();
    const asked = await next;
    expect(asked).toMatch(/^NOT DONE YET[\s\S]*Second\?/);
    expect((await ann.answer(two.url, linkIn(asked), { day: 'Friday' })).status).toBe(303);
    expect(await textOf(other, call)).toBe('First? accept Monday, Second? accept Friday');
  });
});
