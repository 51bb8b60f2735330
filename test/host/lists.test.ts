/** Requests that cannot ask on 2026-07-28, and the list that is read for a tool's declaration about tasks. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  ListPromptsRequestSchema,
  ListToolsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { type Fetch, modernTalk, sessionTalk, type Told } from '../differential/talk.ts';
import { LogBook, SECRET } from '../e2e/harness.ts';

const requestedSchema = { type: 'object' as const, properties: {} };

/** Asks in each of its lists, and has a tool that none of them names. */
function asksInLists(list: (server: Server) => Promise<unknown>): Server {
  const capabilities = { tools: {}, prompts: {}, completions: {} };
  const server = new Server({ name: 'lists', version: '1.0.0' }, { capabilities });
  const named = async (): Promise<string> =>
    list(server).then(
      () => 'asked',
      (error: Error) => error.message,
    );
  server.setRequestHandler(ListToolsRequestSchema, async () => ({
    tools: [{ name: 'other', description: await named(), inputSchema: { type: 'object' } }],
  }));
  server.setRequestHandler(ListPromptsRequestSchema, async () => ({
    prompts: [{ name: 'one', description: await named() }],
  }));
  server.setRequestHandler(CompleteRequestSchema, async () => ({ completion: { values: [await named()] } }));
  server.setRequestHandler(CallToolRequestSchema, () => ({ content: [{ type: 'text', text: 'done' }] }));
  return server;
}

const handlers: AwaitHandler[] = [];
afterEach(async () => {
  await Promise.all(handlers.splice(0).map((handler) => handler.close()));
});

function host(list: (server: Server) => Promise<unknown>, options: AwaitOptions = {}): Fetch {
  const handler = createAwaitHandler(() => asksInLists(list), { logger: new LogBook(), ...options });
  handlers.push(handler);
  return (request) => handler.fetch(request);
}

const STORED = { store: new Keyv(), secrets: [SECRET], tasks: 'optional' as const };
const elicit = (server: Server): Promise<unknown> =>
  server.elicitInput({ message: 'sure?', requestedSchema });
const call = { name: 'unlisted', arguments: {} };
const done = (told: Told): void =>
  expect(told.response).toMatchObject({ result: { content: [{ text: 'done' }] } });

describe.each([
  ['with contexts', {}],
  ['without contexts', { steps: false }],
])('an ask in a request that cannot wait for it, %s', (_name, options) => {
  it.each([
    ['tools/list', {}],
    ['prompts/list', {}],
    ['completion/complete', { ref: { type: 'ref/prompt', name: 'one' }, argument: { name: 'a', value: '' } }],
  ])('fails at once in %s on 2026-07-28', async (method, params) => {
    const { response } = await modernTalk(host(elicit, options)).request(method, params);
    expect(JSON.stringify(response)).toContain(`elicitation/create cannot be asked inside of ${method}`);
  });

  it('delays no call: the list is read for the tools’ declarations, and cannot ask', async () => {
    const fetch = host(elicit, { ...STORED, ...options });
    done(await modernTalk(fetch).request('tools/call', call));
    const session = await sessionTalk(fetch, '2025-11-25');
    const told = await session.request('tools/call', call);
    expect(told.asked).toEqual([]);
    done(told);
  });
});

describe('a list that takes its time', () => {
  it('keeps no call waiting, and is read once at a time in each instance', async () => {
    let lists = 0;
    const never = (): Promise<unknown> => {
      lists += 1;
      return new Promise(() => {});
    };
    const fetch = host(never, STORED);
    const modern = modernTalk(fetch);
    for (let count = 0; count < 3; count += 1) done(await modern.request('tools/call', call));
    const session = await sessionTalk(fetch, '2025-11-25');
    for (let count = 0; count < 3; count += 1) done(await session.request('tools/call', call));
    expect(lists).toBe(4);
  });
});
