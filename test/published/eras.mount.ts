/** What `src/host/era.ts` knows of SDK v2, held against each published 2.x. */
import { afterEach, describe, expect, it } from 'vitest';
import { createAwaitHandler } from '../../src/index.ts';
import { expectSame } from '../differential/compare.ts';
import { mirrorV2, type Sdk } from '../differential/mirror-v2.ts';
import { nativeModern } from '../differential/native.ts';
import { allRounds, type Fetch, modernTalk, type Told } from '../differential/talk.ts';
import { LogBook } from '../e2e/harness.ts';

/** Each release, by the name that it is installed under. */
const RELEASES = [
  ['2.0.0', 'v2-0'],
  ['2.1.0', 'v2-1'],
  ['2.2.0', 'v2-2'],
  ['2.3.0', 'v2-3-0'],
  ['2.3.1', 'v2-3'],
  ['2.4.0', 'v2-4'],
] as const;

let close = async (): Promise<void> => {};
afterEach(() => close());

const seenIn = ({ response }: Told): unknown => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return JSON.parse(content[0]?.text ?? '');
};

describe.each(RELEASES)('a server of @modelcontextprotocol/server %s on 2026-07-28', (_version, name) => {
  const release = async (): Promise<Sdk> => (await import(name)) as Sdk;

  async function both(): Promise<{ native: Fetch; hosted: Fetch; sdk: Sdk }> {
    const sdk = await release();
    const handler = createAwaitHandler((view) => mirrorV2(view, sdk), { logger: new LogBook() });
    close = () => handler.close();
    await handler.check();
    return {
      sdk,
      native: nativeModern((view) => mirrorV2(view, sdk), undefined, sdk.createMcpHandler),
      hosted: (request) => handler.fetch(request),
    };
  }

  it('sees what it sees natively', async () => {
    const { native, hosted } = await both();
    const see = async (fetch: Fetch): Promise<unknown> =>
      seenIn(await modernTalk(fetch).request('tools/call', { name: 'see', arguments: {} }));
    expectSame(await see(native), await see(hosted), { session: 'session-id' });
  });

  it.each([
    ['tools/call', { name: 'lists', arguments: {} }],
    ['tools/call', { name: 'counts', arguments: {} }],
    ['tools/list', {}],
    ['resources/read', { uri: 'note://one' }],
  ])('answers %s as natively', async (method, params) => {
    const { native, hosted } = await both();
    const [one, other] = [
      await modernTalk(native).request(method, params),
      await modernTalk(hosted).request(method, params),
    ];
    expectSame(one, other);
  });

  it.each(['needs', 'needs-thrice', 'needs-time'])(
    '%s: has the rounds that it has natively',
    async (tool) => {
      const { native, hosted } = await both();
      const rounds = (fetch: Fetch) =>
        allRounds(modernTalk(fetch), 'tools/call', { name: tool, arguments: {} });
      expectSame(await rounds(native), await rounds(hosted));
    },
  );

  it('awaits what its SDK refuses to send', async () => {
    const { sdk } = await both();
    await close();
    const handler = createAwaitHandler(
      () => {
        const server = mirrorV2({}, sdk);
        const requestedSchema = {
          type: 'object' as const,
          properties: { name: { type: 'string' as const } },
        };
        server.server.setRequestHandler('tools/call', async (_request, { mcpReq }) => {
          const { content } = await mcpReq.elicitInput({ message: 'name?', requestedSchema });
          const { roots } = await server.server.listRoots();
          const { model } = await mcpReq.requestSampling({
            messages: [{ role: 'user', content: { type: 'text', text: 'a poem' } }],
            maxTokens: 10,
          });
          const text = `${String(content?.name)} ${roots[0]?.uri} ${model}`;
          return { content: [{ type: 'text', text }] };
        });
        return server;
      },
      { logger: new LogBook() },
    );
    close = () => handler.close();
    const talk = modernTalk((request) => handler.fetch(request));
    const { told } = await allRounds(talk, 'tools/call', { name: 'asks', arguments: {} });
    expect(JSON.stringify(told.response)).toContain('Ann file:///home/ann test');
  });
});
