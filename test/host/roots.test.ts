/** A server that asks for its client's roots as it starts, as server-filesystem does: no tool runs without them. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import {
  allRounds,
  type Fetch,
  type Json,
  modernTalk,
  sessionTalk,
  type Told,
} from '../differential/talk.ts';
import { CELLS, LogBook, optionsOf, SECRET } from '../e2e/harness.ts';

const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } };

/** Its tool tells the roots that it knows as it starts, and asks something. */
function rooted(): McpServer {
  const server = new McpServer({ name: 'rooted', version: '1.0.0' });
  let roots: string[] = ['none yet'];
  server.server.oninitialized = async () => {
    const known = await server.server.listRoots().catch((error: Error) => error);
    roots = known instanceof Error ? [known.message] : known.roots.map(({ uri }) => uri);
  };
  server.registerTool('look', {}, async () => {
    const before = roots.join();
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema });
    return { content: [{ type: 'text', text: `${before} for ${String(content?.name)}` }] };
  });
  server.registerTool('plain', {}, () => ({ content: [{ type: 'text', text: roots.join() }] }));
  server.registerPrompt('hint', {}, () => ({
    messages: [{ role: 'user', content: { type: 'text', text: 'hint' } }],
  }));
  return server;
}

const handlers: AwaitHandler[] = [];
afterEach(async () => {
  await Promise.all(handlers.splice(0).map((handler) => handler.close()));
});

function host(options: AwaitOptions = {}): Fetch {
  const handler = createAwaitHandler(rooted, { logger: new LogBook(), ...options });
  handlers.push(handler);
  return (request) => handler.fetch(request);
}

const textOf = ({ response }: Told): string => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return content[0]?.text ?? JSON.stringify(response);
};
const methodsOf = (rounds: readonly Json[]): unknown[] =>
  rounds.map((asks) => Object.values(asks).map((ask) => (ask as Json).method));

describe.each(CELLS)('on 2026-07-28 ($name)', (cell) => {
  it('its tool waits for the roots, which are asked once in the call', async () => {
    const talk = modernTalk(host(optionsOf(cell)));
    const look = await allRounds(talk, 'tools/call', { name: 'look', arguments: {} });
    expect(textOf(look.told)).toBe('file:///home/ann for Ann');
    expect(methodsOf(look.rounds)).toEqual([['roots/list'], ['elicitation/create']]);
    const plain = await allRounds(talk, 'tools/call', { name: 'plain', arguments: {} });
    expect(textOf(plain.told)).toBe('file:///home/ann');
  });

  it('its tool starts at once where the client has no roots', async () => {
    const talk = modernTalk(host(optionsOf(cell)), { capabilities: { elicitation: {} } });
    expect(textOf(await talk.request('tools/call', { name: 'plain', arguments: {} }))).toContain(
      'Client does not support roots',
    );
  });

  it('lists and prompts are not held back', async () => {
    const talk = modernTalk(host(optionsOf(cell)));
    expect((await talk.request('tools/list')).response).toMatchObject({ result: { tools: [{}, {}] } });
    expect((await talk.request('prompts/get', { name: 'hint' })).response).toMatchObject({
      result: { messages: [{}] },
    });
  });
});

describe('on 2025-11-25', () => {
  it('each further process asks for the roots before its first call, on the stream of that call', async () => {
    const shared = { store: new Keyv(), secrets: [SECRET] };
    const [here, there] = [host(shared), host(shared)];
    let fetch = here;
    const talk = await sessionTalk((request) => fetch(request), '2025-11-25');
    await talk.request('tools/list');
    fetch = there;
    expect((await talk.request('tools/list')).asked).toEqual([]);
    const first = await talk.request('tools/call', { name: 'plain', arguments: {} });
    expect(first.asked.map(({ method }) => method)).toEqual(['roots/list']);
    expect(textOf(first)).toBe('file:///home/ann');
    const second = await talk.request('tools/call', { name: 'plain', arguments: {} });
    expect(second.asked).toEqual([]);
    expect(textOf(second)).toBe('file:///home/ann');
  });
});
