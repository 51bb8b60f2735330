/** An ask that its author named keeps that name on the wire, whatever its client answers. */
import { McpServer } from '@modelcontextprotocol/server';
import { afterAll, expect, it } from 'vitest';
import { createAwaitHandler } from '../../src/index.ts';
import { type Json, modernTalk } from '../differential/talk.ts';
import { LogBook } from './harness.ts';

const requestedSchema = {
  type: 'object' as const,
  properties: { login: { type: 'string' as const } },
  required: ['login'],
};
const handler = createAwaitHandler(
  () => {
    const server = new McpServer({ name: 'named', version: '1.0.0' });
    server.registerTool('ask', {}, async ({ mcpReq }) => {
      const named = { 'mcp-await/key': 'github_login' };
      const { content } = await mcpReq.elicitInput({ message: 'Who?', requestedSchema, _meta: named });
      return { content: [{ type: 'text', text: String(content?.login) }] };
    });
    return server;
  },
  { logger: new LogBook() },
);
afterAll(() => handler.close());

it('is asked again under its name after a bad answer', async () => {
  const talk = modernTalk((request) => handler.fetch(request));
  const send = async (retry: Json = {}) =>
    (await talk.request('tools/call', { name: 'ask', arguments: {}, ...retry })).response?.result as Json;
  let asked = await send();
  for (let bad = 0; bad < 3; bad += 1) {
    expect(Object.keys(asked.inputRequests as Json)).toEqual(['github_login']);
    const inputResponses = { github_login: { action: 'accept', content: { login: 7 } } };
    asked = await send({ requestState: asked.requestState, inputResponses });
  }
  const inputResponses = { github_login: { action: 'accept', content: { login: 'octocat' } } };
  const { content } = await send({ requestState: asked.requestState, inputResponses });
  expect(content).toEqual([{ type: 'text', text: 'octocat' }]);
});
