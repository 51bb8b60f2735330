/** A server of SDK v2, on its own SDK's transports and hosted: equal, or a line in `docs/differences.md`. */
import { afterEach, describe, it } from 'vitest';
import { type AwaitOptions, createAwaitHandler } from '../../src/index.ts';
import { CELLS, LogBook, optionsOf } from '../e2e/harness.ts';
import { type Differs, expectSame } from './compare.ts';
import { mirrorV2 } from './mirror-v2.ts';
import { nativeModern, nativeSessionsV2 } from './native.ts';
import {
  allRounds,
  type Fetch,
  type How,
  type Json,
  modernTalk,
  sessionTalk,
  type Talk,
  type Told,
} from './talk.ts';

const AUTH = { token: 'of-ann', clientId: 'ann', scopes: [] };

interface Case {
  readonly name: string;
  readonly method: string;
  readonly params?: Json;
  readonly headers?: Readonly<Record<string, string>>;
  readonly how?: How;
  readonly differs?: Differs;
  readonly options?: AwaitOptions;
}

const call = (name: string, rest: Partial<Case> = {}, args: Json = {}): Case => ({
  name: `tools/call ${name}`,
  method: 'tools/call',
  params: { name, arguments: args },
  ...rest,
});

/** What both revisions have. */
const CASES: readonly Case[] = [
  call('fails'),
  call('refuses'),
  call('lists'),
  call('counts'),
  call('describes'),
  call('breaks-its-schema'),
  call('echo', {}, { value: 7 }),
  call('echo', { name: 'arguments that break the schema' }, { value: 'seven' }),
  call('nowhere'),
  { name: 'prompts/list', method: 'prompts/list' },
  { name: 'prompts/get', method: 'prompts/get', params: { name: 'greet', arguments: { name: 'Ann' } } },
  { name: 'prompts/get without its argument', method: 'prompts/get', params: { name: 'greet' } },
  { name: 'resources/list', method: 'resources/list' },
  { name: 'resources/templates/list', method: 'resources/templates/list' },
  { name: 'resources/read', method: 'resources/read', params: { uri: 'note://one' } },
  { name: 'resources/read of a template', method: 'resources/read', params: { uri: 'note://b/more' } },
  { name: 'resources/read of nothing', method: 'resources/read', params: { uri: 'note://gone' } },
  {
    name: 'completion/complete',
    method: 'completion/complete',
    params: { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'A' } },
  },
  { name: 'an unknown method', method: 'vendor/nothing' },
  call('echo', {
    name: 'a call as a task',
    params: { name: 'echo', arguments: { value: 7 }, task: { ttl: 60_000 } },
  }),
  {
    name: 'a prompt as a task',
    method: 'prompts/get',
    params: { name: 'greet', arguments: { name: 'Ann' }, task: {} },
  },
  { name: 'tasks/get', method: 'tasks/get', params: { taskId: 'any' } },
  { name: 'tasks/cancel', method: 'tasks/cancel', params: { taskId: 'any' } },
];

const LEGACY: readonly Case[] = [
  ...CASES,
  { name: 'tools/list', method: 'tools/list' },
  {
    name: 'tools/list, with tasks',
    method: 'tools/list',
    options: { tasks: 'optional' },
    differs: { 'response.result.tools.*.execution': 'task-support' },
  },
];

const MODERN: readonly Case[] = [
  ...CASES,
  { name: 'tools/list', method: 'tools/list' },
  { name: 'server/discover', method: 'server/discover' },
  {
    name: 'server/discover, with tasks',
    method: 'server/discover',
    options: { tasks: 'optional' },
    differs: { 'response.result.capabilities.extensions': 'tasks-extension' },
  },
  call('says', { params: { name: 'says', arguments: {}, _meta: { progressToken: 'p1' } } }),
  call('says', { name: 'says, from debug on', how: { logLevel: 'debug' } }),
  call('says', { name: 'says, from error on', how: { logLevel: 'error' } }),
  call('needs-what-nobody-has', { how: { capabilities: {} } }),
  call('needs-nothing'),
  { name: 'ping', method: 'ping' },
  { name: 'logging/setLevel', method: 'logging/setLevel', params: { level: 'debug' } },
];

let handlers: ReturnType<typeof createAwaitHandler>[] = [];
afterEach(async () => {
  await Promise.all(handlers.map((handler) => handler.close()));
  handlers = [];
});

function hosted(options = {}): Fetch {
  const handler = createAwaitHandler((view) => mirrorV2(view), { logger: new LogBook(), ...options });
  handlers.push(handler);
  return (request) => handler.fetch(request, { authInfo: AUTH });
}

const textOf = ({ response }: Told): unknown => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return JSON.parse(content[0]?.text ?? '');
};

const stateOf = ({ response }: Told): Json => (response?.result ?? {}) as Json;

describe('a server of SDK v2 and a client of 2026-07-28', () => {
  const native = (): Fetch => nativeModern((view) => mirrorV2(view), AUTH);

  it.each(MODERN)('gets the same: $name', async ({ method, params, headers, how, differs, options }) => {
    const one = await modernTalk(native(), how).request(method, params, headers);
    const other = await modernTalk(hosted(options), how).request(method, params, headers);
    expectSame(one, other, differs);
  });

  it.each<{ name: string; how?: How }>([
    { name: 'a client that can be asked everything' },
    { name: 'a client that can be asked nothing', how: { capabilities: {} } },
    { name: 'a client that takes forms by an empty declaration', how: { capabilities: { elicitation: {} } } },
    { name: 'a client that wants log messages', how: { logLevel: 'info' } },
  ])('the server sees the same of $name', async ({ how }) => {
    const see = async (fetch: Fetch): Promise<unknown> => {
      const meta = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'x/y': 1 };
      const told = await modernTalk(fetch, how).request('tools/call', {
        name: 'see',
        arguments: {},
        _meta: meta,
      });
      return textOf(told);
    };
    expectSame(await see(native()), await see(hosted()), { session: 'session-id' });
  });

  describe.each(CELLS)('a tool that returns inputRequired ($name)', (cell) => {
    it.each(['needs', 'needs-thrice', 'needs-time'])('%s: the same rounds and the same end', async (name) => {
      const rounds = async (fetch: Fetch): Promise<unknown> =>
        allRounds(modernTalk(fetch), 'tools/call', { name, arguments: {} });
      expectSame(await rounds(native()), await rounds(hosted(optionsOf(cell))));
    });

    it('sees a badly shaped answer as its SDK shows it', async () => {
      const bad = async (fetch: Fetch): Promise<Told> => {
        const talk: Talk = modernTalk(fetch);
        const first = await talk.request('tools/call', { name: 'needs-thrice', arguments: {} });
        const { requestState } = stateOf(first);
        const inputResponses = { again: { action: 'accept', content: { name: 7 } } };
        return talk.request('tools/call', {
          name: 'needs-thrice',
          arguments: {},
          requestState,
          inputResponses,
        });
      };
      const [one, other] = [await bad(native()), await bad(hosted(optionsOf(cell)))];
      expectSame(one, other, { 'response.result.requestState': 'request-state' });
    });
  });
});

describe('a server of SDK v2 and a client of 2025-11-25', () => {
  const native = (): Promise<Talk> =>
    sessionTalk(
      nativeSessionsV2((view) => mirrorV2(view), AUTH),
      '2025-11-25',
    );

  it.each(LEGACY)('gets the same: $name', async ({ method, params, differs, options }) => {
    const other = await (await sessionTalk(hosted(options), '2025-11-25')).request(method, params);
    expectSame(await (await native()).request(method, params), other, differs);
  });

  it('the server sees the same', async () => {
    const see = async (talk: Talk): Promise<unknown> =>
      textOf(await talk.request('tools/call', { name: 'see', arguments: {} }));
    expectSame(await see(await native()), await see(await sessionTalk(hosted(), '2025-11-25')), {
      'factory.era': 'factory-context',
      'factory.tenant': 'factory-context',
      'factory.method': 'factory-context',
      'factory.authInfo': 'factory-context',
    });
  });
});
