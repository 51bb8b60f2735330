/** A server of SDK v1, on its own SDK's transport and hosted: equal, or a line in `docs/differences.md`. */
import { randomUUID } from 'node:crypto';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { afterEach, describe, it } from 'vitest';
import { type AwaitHandler, type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { LogBook } from '../e2e/harness.ts';
import { type Differs, expectSame } from './compare.ts';
import { mirrorV1 } from './mirror-v1.ts';
import { nativeSessions } from './native.ts';
import { allRounds, type Fetch, type Json, modernTalk, sessionTalk, type Talk, type Told } from './talk.ts';

const AUTH = { token: 'of-ann', clientId: 'ann', scopes: [] };

interface Case {
  readonly name: string;
  readonly method: string;
  readonly params?: Json;
  readonly differs?: Differs;
  readonly options?: AwaitOptions;
}

const call = (name: string, args: Json = {}, rest: Partial<Case> = {}): Case => ({
  name: `tools/call ${name}`,
  method: 'tools/call',
  params: { name, arguments: args },
  ...rest,
});

const CASES: readonly Case[] = [
  call('fails'),
  call('refuses'),
  call('echo', { value: 7 }),
  call('echo', { value: 'seven' }, { name: 'arguments that break the schema' }),
  call('nowhere'),
  call('says', {}, { params: { name: 'says', arguments: {}, _meta: { progressToken: 'p1' } } }),
  call(
    'echo',
    {},
    { name: 'a call as a task', params: { name: 'echo', arguments: { value: 7 }, task: { ttl: 60_000 } } },
  ),
  {
    name: 'a prompt as a task',
    method: 'prompts/get',
    params: { name: 'greet', arguments: { name: 'Ann' }, task: {} },
  },
  { name: 'tasks/get', method: 'tasks/get', params: { taskId: 'any' } },
  { name: 'tasks/list', method: 'tasks/list' },
  { name: 'tools/list', method: 'tools/list' },
  {
    name: 'tools/list, with tasks',
    method: 'tools/list',
    options: { tasks: 'optional' },
    differs: { 'response.result.tools.*.execution.taskSupport': 'task-support' },
  },
  { name: 'prompts/list', method: 'prompts/list' },
  { name: 'prompts/get', method: 'prompts/get', params: { name: 'greet', arguments: { name: 'Ann' } } },
  { name: 'resources/list', method: 'resources/list' },
  { name: 'resources/read', method: 'resources/read', params: { uri: 'note://one' } },
  { name: 'resources/read of nothing', method: 'resources/read', params: { uri: 'note://gone' } },
  { name: 'logging/setLevel', method: 'logging/setLevel', params: { level: 'debug' } },
  { name: 'ping', method: 'ping' },
  { name: 'an unknown method', method: 'vendor/nothing' },
];

let handlers: AwaitHandler[] = [];
afterEach(async () => {
  await Promise.all(handlers.map((handler) => handler.close()));
  handlers = [];
});

function hosted(options: AwaitOptions = {}): Fetch {
  const handler = createAwaitHandler((view) => mirrorV1(view), { logger: new LogBook(), ...options });
  handlers.push(handler);
  return (request) => handler.fetch(request, { authInfo: AUTH });
}

const native = (): Fetch =>
  nativeSessions(async () => {
    const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
    await mirrorV1({}).connect(transport);
    return transport;
  }, AUTH);

const seenIn = ({ response }: Told): unknown => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return JSON.parse(content[0]?.text ?? '{}');
};
const see = async (talk: Talk): Promise<unknown> =>
  seenIn(await talk.request('tools/call', { name: 'see', arguments: {} }));

describe.each(['2025-11-25', '2025-06-18'])('a server of SDK v1 and a client of %s', (revision) => {
  it.each(CASES)('gets the same: $name', async ({ method, params, differs, options }) => {
    const one = await (await sessionTalk(native(), revision)).request(method, params);
    const other = await (await sessionTalk(hosted(options), revision)).request(method, params);
    expectSame(one, other, revision === '2025-11-25' ? differs : undefined);
  });

  it('the server sees the same', async () => {
    expectSame(
      await see(await sessionTalk(native(), revision)),
      await see(await sessionTalk(hosted(), revision)),
      {
        factory: 'factory-context',
      },
    );
  });

  it('its tool gets the same answers to what it asks', async () => {
    const ask = async (fetch: Fetch): Promise<unknown> => {
      const told = await (await sessionTalk(fetch, revision)).request('tools/call', {
        name: 'asks',
        arguments: {},
      });
      return { seen: seenIn(told), asked: told.asked.map(({ method, params }) => ({ method, params })) };
    };
    expectSame(await ask(native()), await ask(hosted()));
  });
});

it('a client that declared nothing is asked nothing', async () => {
  const ask = async (fetch: Fetch): Promise<unknown> => {
    const talk = await sessionTalk(fetch, '2025-11-25', { capabilities: {} });
    const { asked, response } = await talk.request('tools/call', { name: 'asks', arguments: {} });
    return { asked: asked.length, failed: (response?.result as Json | undefined)?.isError === true };
  };
  expectSame(await ask(native()), await ask(hosted()), { asked: 'undeclared-ask', failed: 'undeclared-ask' });
});

describe('a server of SDK v1 and a client of 2026-07-28, which its SDK does not know', () => {
  it('sees what it would see of a client of 2025-11-25', async () => {
    expectSame(await see(await sessionTalk(native(), '2025-11-25')), await see(modernTalk(hosted())), {
      factory: 'factory-context',
    });
  });

  it('gets the answers that it would get', async () => {
    const live = await (await sessionTalk(native(), '2025-11-25')).request('tools/call', {
      name: 'asks',
      arguments: {},
    });
    const { told } = await allRounds(modernTalk(hosted()), 'tools/call', { name: 'asks', arguments: {} });
    expectSame(seenIn(live), seenIn(told));
  });
});
