/** What a server sends outside of calls, before it has answered `initialize` too, is answered, dropped, or counts in a budget. */
import { expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { isObject, isUnpassed, type JsonObject } from '../../src/base/values.ts';
import { contextOfRequest, currentContext, runInContext } from '../../src/call/frame/context.ts';
import { NOBODY } from '../../src/host/spoken.ts';
import { isRpcMessage, type LinkEvents } from '../../src/proxy/link.ts';
import { Peer } from '../../src/proxy/peer.ts';
import { LogBook } from '../e2e/harness.ts';

function starting(onSend = (): unknown => undefined) {
  const sent: JsonObject[] = [];
  const killed: unknown[] = [];
  let events: LinkEvents | undefined;
  const openLink = (heard: LinkEvents) => {
    events = heard;
    return {
      send: (message: JsonObject) => {
        onSend();
        sent.push(message);
      },
      close: async () => {},
      kill: (reason?: string) => void killed.push(reason),
    };
  };
  const budget = new Budget(1_100_000);
  const account = (breakOff: () => void) => budget.open({}, breakOff);
  const options = { name: 'server', logger: new LogBook(), startTimeout: 60_000, askTimeout: 0, account };
  const peer = Peer.open(openLink, NOBODY, options);
  const say = (message: JsonObject): void => events?.message({ jsonrpc: '2.0', ...message });
  const initialize = (result: JsonObject = {}): Promise<Peer> => {
    say({ id: sent[0]?.id, result });
    return peer;
  };
  return { budget, sent, killed, say, initialize, seen: () => sent.length };
}

it('a notification before the response to initialize is dropped, whatever its size', async () => {
  const { killed, say, initialize } = starting();
  const data = 'x'.repeat(9_000_000);
  for (let count = 0; count < 4; count += 1) say({ method: 'notifications/message', params: { data } });
  await initialize();
  expect(killed).toEqual([]);
});

it('its connection and its list of tools are of no call: they would keep it', async () => {
  const contexts: unknown[] = [];
  const { initialize, seen } = starting(() => contexts.push(currentContext()));
  const peer = await initialize();
  await runInContext(contextOfRequest({}), async () => {
    void peer.request('tools/call', {}).catch(() => {});
    void peer.mayRepeat('a').catch(() => {});
    peer.notify({ jsonrpc: '2.0', method: 'notifications/cancelled' });
  });
  expect(seen()).toBeGreaterThan(3);
  expect(contexts.filter((context) => context !== undefined)).toEqual([]);
});

it('a ping before the response to initialize is answered at once', () => {
  const { sent, say } = starting();
  say({ id: 'p', method: 'ping' });
  expect(sent.at(-1)).toEqual({ jsonrpc: '2.0', id: 'p', result: {} });
});

it.each([
  ['before', 'parameters', true],
  ['after', 'parameters', false],
  ['after', 'ids', false],
])(
  'asks %s the response to initialize count with their %s until they are answered',
  async (_when, what, isEarly) => {
    const { budget, sent, say, initialize } = starting();
    const peer = isEarly ? undefined : await initialize();
    const much = 'x'.repeat(100_000);
    for (let nth = 0; nth < 3; nth += 1)
      say({
        id: what === 'ids' ? `${nth}${much}` : nth,
        method: 'roots/list',
        params: { nth, ...(what !== 'ids' && { much }) },
      });
    expect(Math.floor(budget.bytes / 100_000)).toBe(3);
    const own = peer ?? (await initialize());
    await own.askStrays(async () => ({ result: {} }));
    await expect.poll(() => sent.filter(({ result }) => result !== undefined)).toHaveLength(3);
    expect(budget.bytes).toBe(0);
  },
);

it('asks that take too much memory end the server', async () => {
  const { budget, killed, say, initialize } = starting();
  await initialize();
  const much = 'x'.repeat(100_000);
  for (let nth = 0; nth < 5; nth += 1) say({ id: nth, method: 'roots/list', params: { much } });
  expect([killed.length, Math.floor(budget.bytes / 100_000)]).toEqual([0, 5]);
  say({ id: 5, method: 'roots/list', params: { much } });
  expect([killed.length, budget.bytes]).toEqual([1, 0]);
});

it.each([
  [
    'that the server cancels',
    (nth: number) => ({ method: 'notifications/cancelled', params: { requestId: nth } }),
  ],
  ['whose id is used again', (nth: number) => ({ id: nth, method: 'ask', params: {} })],
])('an ask %s counts no more, and is asked of nobody', async (_which, next) => {
  const { budget, killed, say, initialize } = starting();
  const peer = await initialize();
  const much = 'x'.repeat(100_000);
  for (let nth = 0; nth < 20; nth += 1) {
    say({ id: nth, method: 'ask', params: { much } });
    say(next(nth));
  }
  expect(killed).toEqual([]);
  expect(budget.bytes).toBeLessThan(100_000);
  const asked: unknown[] = [];
  await peer.askStrays(async ({ params }) => {
    asked.push(params);
    return { result: {} };
  });
  expect(asked.filter((params) => isObject(params) && params.much !== undefined)).toEqual([]);
});

it('asks outside of calls are over with their server, and those of a call are not', async () => {
  const sent: JsonObject[] = [];
  let events: LinkEvents | undefined;
  const openLink = (heard: LinkEvents) => {
    events = heard;
    return { send: (message: JsonObject) => void sent.push(message), close: async () => {}, kill: () => {} };
  };
  const account = (breakOff: () => void) => new Budget(1_100_000).open({}, breakOff);
  const options = { name: 'server', logger: new LogBook(), startTimeout: 60_000, askTimeout: 0, account };
  const opening = Peer.open(openLink, NOBODY, options);
  const say = (message: JsonObject): void => events?.message({ jsonrpc: '2.0', ...message });
  say({ id: sent[0]?.id, result: {} });
  const peer = await opening;
  const signals: AbortSignal[] = [];
  const ask = ({ signal }: { signal: AbortSignal }): Promise<never> => {
    signals.push(signal);
    return new Promise(() => {});
  };
  peer.outside = { ask, notification: () => {} };
  say({ id: 1, method: 'elicitation/create', params: { message: 'outside' } });
  peer.holder = { owner: { ask, notification: () => {} }, repeatable: true } as never;
  say({ id: 2, method: 'elicitation/create', params: { message: 'of a call' } });
  expect(signals.map(({ aborted }) => aborted)).toEqual([false, false]);
  events?.ended('it was killed');
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
});

it('a message with an id of more than a kilobyte is none', () => {
  const ping = (id: string) => ({ jsonrpc: '2.0', id, method: 'ping' });
  expect([isRpcMessage(ping('x'.repeat(1_024))), isRpcMessage(ping('x'.repeat(1_025)))]).toEqual([
    true,
    false,
  ]);
});

it('a server whose result of initialize is larger than a session may keep is ended', async () => {
  await starting().initialize({ instructions: 'x'.repeat(65_000) });
  const { killed, initialize } = starting();
  await expect(initialize({ instructions: 'x'.repeat(65_536) })).rejects.toMatchObject({
    code: 'host-gone',
    message: 'server cannot be served: its result of initialize is above 64 KiB',
  });
  expect(killed).toHaveLength(1);
});

it('an error that says that its call was not passed on keeps its mark on the way from another process', async () => {
  const { sent, say, initialize } = starting();
  const peer = await initialize();
  for (const isMarked of [true, false]) {
    const response = peer.request('resources/list', {});
    const { id } = sent.at(-1) ?? {};
    say({ id, error: { code: -32603, message: 'away', data: {} }, ...(isMarked && { unpassed: true }) });
    expect(isUnpassed(await response)).toBe(isMarked);
  }
});
