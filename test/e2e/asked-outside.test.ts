/** What a server asks outside of calls on the revisions whose asks are parts of responses: an error at once. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { RootsListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import sessionServer from '../fixtures/session-server.ts';
import { modern } from './clients.ts';
import { type Served, serveHere } from './harness.ts';
import { again, call, DRAFTS, openSession, request, textIn } from './rounds.ts';

let served: Served;
afterEach(() => served.close());

/** Asks for roots when they change, outside of any call. */
function watching(): McpServer {
  const server = new McpServer({ name: 'watching', version: '1.0.0' });
  let outcome = 'pending';
  const ask = (): Promise<void> =>
    server.server.listRoots().then(
      () => {
        outcome = 'answered';
      },
      ({ message }: Error) => {
        outcome = message;
      },
    );
  server.server.setNotificationHandler(RootsListChangedNotificationSchema, () => void ask());
  server.registerTool('outcome', {}, () => ({ content: [{ type: 'text', text: outcome }] }));
  // A worker loop runs its jobs in its own async context, which is no call's.
  const jobs: (() => void)[] = [];
  setInterval(() => jobs.shift()?.(), 5).unref();
  server.registerTool('queued', {}, async () => {
    await new Promise<void>((resolve) => jobs.push(() => void ask().then(resolve)));
    return { content: [{ type: 'text', text: outcome }] };
  });
  return server;
}

describe.each(DRAFTS)('$revision', (words) => {
  it('fails with the way to ask, and asks nothing', async () => {
    served = await serveHere(watching);
    const session = await openSession(served.url, words.revision);
    const changed = { jsonrpc: '2.0', method: 'notifications/roots/list_changed' };
    expect((await session.post(changed)).status).toBe(202);
    const told = await session.post(call('outcome'));
    expect(textIn(told)).toContain('was asked outside of any call');
    expect(textIn(told)).toContain('extra.sendRequest');
    expect(served.log.text).toContain('was asked outside of any call');
  });

  it('sends the roots of a server’s start-up out with its first tool', async () => {
    served = await serveHere(sessionServer);
    const session = await openSession(served.url, words.revision);
    await session.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    const asking = call('roots');
    const first = await session.post(asking);
    const [[key, ask] = ['']] = Object.entries(words.asked(first.message));
    expect(ask).toMatchObject({ method: 'roots/list' });
    const answers = words.answers({ [key]: { roots: [{ uri: 'file:///here' }] } });
    const done = await session.post(words.retry(again(asking), words.state(first.message), answers));
    expect(textIn(done)).toBe('file:///here');
    expect(textIn(await session.post(request('tools/call', { name: 'roots', arguments: {} })))).toBe(
      'file:///here',
    );
  });
});

it('on 2026-07-28 an instance that serves several calls fails in the same way', async () => {
  served = await serveHere(watching, { instance: 'process' });
  const client = await modern(served.url);
  expect(await client.tool('queued')).toContain('was asked outside of any call');
  await client.close();
});
