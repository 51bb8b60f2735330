/** Tools that throw URLs which their user has to open first (-32042), where there is a page. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { UrlElicitationRequiredError } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Served } from '../e2e/harness.ts';
import { linkIn, PersonAtPage } from './person.ts';
import { cleanUp, connected, request, serveTwo } from './two.ts';

const FORM = { type: 'object' as const, properties: {} };
const URLS = {
  mode: 'url' as const,
  elicitationId: 'e',
  url: 'https://example.com/login',
  message: 'Sign in',
};
let hasSignedIn = false;
let runs = 0;
beforeEach(() => {
  hasSignedIn = false;
  runs = 0;
});
afterEach(cleanUp);

function build(): McpServer {
  const server = new McpServer({ name: 'account', version: '1' });
  const pay = async (isAsked: boolean) => {
    runs += 1;
    const action = isAsked
      ? (await server.server.elicitInput({ message: 'Pay?', requestedSchema: FORM })).action
      : 'at once';
    if (!hasSignedIn) throw new UrlElicitationRequiredError([URLS]);
    return { content: [{ type: 'text' as const, text: `paid: ${action}` }] };
  };
  server.registerTool('pay', {}, () => pay(false));
  server.registerTool('confirm', {}, () => pay(true));
  return server;
}

const serve = async (): Promise<Served> => (await serveTwo(build))[0];

it.each<[string, object]>([
  ['declares nothing', {}],
  ['opens URLs', { elicitation: { url: {} } }],
  ['has both modes', { elicitation: { form: {}, url: {} } }],
])('2025-11-25: a client that %s gets the URLs, and calls again at any time', async (_what, capabilities) => {
  const client = await connected(await serve(), capabilities, () => {
    throw new Error('it is not asked');
  });
  const pay = () => client.callTool({ name: 'pay', arguments: {} });
  await expect(pay()).rejects.toMatchObject({ code: -32042, data: { elicitations: [URLS] } });
  await expect(pay()).rejects.toMatchObject({ code: -32042 });
  expect(runs).toBe(2);
  hasSignedIn = true;
  expect(await pay()).toEqual({ content: [{ type: 'text', text: 'paid: at once' }] });
});

it('2025-11-25: a call that was answered on the page, and then needs URLs, is asked anew', async () => {
  const one = await serve();
  const client = await connected(one, {}, () => ({ action: 'cancel' }));
  const ann = new PersonAtPage();
  const confirm = () => client.callTool({ name: 'confirm', arguments: {} });
  const answered = async (): Promise<unknown> => {
    const { content } = await confirm();
    await ann.answer(one.url, linkIn((content as { text: string }[])[0]?.text ?? ''), {});
    return confirm();
  };
  await expect(answered()).rejects.toMatchObject({ code: -32042 });
  hasSignedIn = true;
  expect(await answered()).toEqual({ content: [{ type: 'text', text: 'paid: accept' }] });
});

it('2026-07-28: a call that ended since a URL was not done yet is asked anew', async () => {
  const one = await serve();
  const ann = new PersonAtPage();
  const confirm = async (): Promise<string> => {
    for (let more = {}; ; ) {
      const params = { name: 'confirm', arguments: {}, ...more };
      const { result } = await request(one, 'tools/call', params, { elicitation: { url: {} } });
      const { resultType, inputRequests = {}, requestState, content } = result as Round;
      if (resultType !== 'input_required') return content?.[0]?.text ?? '';
      const asks = Object.entries(inputRequests);
      for (const [, { params }] of asks)
        if (params.url !== URLS.url) await ann.answer(one.url, params.url, {});
      const inputResponses = Object.fromEntries(asks.map(([key]) => [key, { action: 'accept' }]));
      more = { inputResponses, requestState };
    }
  };
  expect(await confirm()).toContain('still needs what is done at: https://example.com/login');
  hasSignedIn = true;
  expect(await confirm()).toBe('paid: accept');
});

interface Round {
  readonly resultType?: string;
  readonly inputRequests?: Readonly<Record<string, { readonly params: { readonly url: string } }>>;
  readonly requestState?: string;
  readonly content?: readonly { readonly text: string }[];
}
