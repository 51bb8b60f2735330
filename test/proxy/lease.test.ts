/** What a server elsewhere notifies of reaches its client's connection at once: nothing of it waits for a turn. */
import { describe, expect, it, vi } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { AwaitError, CANCEL, deferred, isUnpassed, nextTurn } from '../../src/base/values.ts';
import { type CallContext, runInContext } from '../../src/call/frame/context.ts';
import { NOBODY } from '../../src/host/spoken.ts';
import { HostTransport } from '../../src/host/transport.ts';
import { PeerLease } from '../../src/proxy/lease.ts';
import type { LinkEvents } from '../../src/proxy/link.ts';
import { Peer } from '../../src/proxy/peer.ts';
import { LogBook } from '../e2e/harness.ts';

it('a flood of notifications leaves nothing behind', async () => {
  let passed = 0;
  const transport = new HostTransport('session', {
    notification: () => {
      passed += 1;
    },
  } as never);
  const lease = new PeerLease({} as never, { logger: { warn: () => {} } } as never);
  await lease.connect(transport);
  const notification = { jsonrpc: '2.0' as const, method: 'notifications/x' };
  for (let nth = 0; nth < 10_000; nth += 1) lease.notification(notification);
  expect(passed).toBe(10_000);
  let isFree = false;
  void transport.send(notification).then(() => {
    isFree = true;
  });
  let turns = 0;
  for (; !isFree; turns += 1) await nextTurn();
  expect(turns).toBeLessThan(5);
});

it('an error of a call that was not passed on is marked for another process, and for this one', async () => {
  const told: { unpassed?: unknown; error?: unknown }[] = [];
  const transport = {
    start: async () => {},
    tell: (message: object) => told.push(message),
  } as unknown as HostTransport;
  const away = new AwaitError('host-gone', 'it cannot be started');
  const group = { turn: () => Promise.reject(away) } as never;
  const lease = new PeerLease(group, { logger: { warn: () => {} } } as never);
  await lease.connect(transport);
  transport.onmessage?.({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'one' } });
  await expect.poll(() => told).toMatchObject([{ id: 1, unpassed: true, error: { code: -32603 } }]);
  expect(told.map(isUnpassed)).toEqual([true]);
  expect(isUnpassed(JSON.parse(JSON.stringify(told[0])))).toBe(false);
});

/**
 * A lease whose server answers, in a call whose journal writes that it is sent when it is told to.
 * @param strays what the server asked before it had a client
 */
async function journaled(strays: Promise<void> = Promise.resolve()) {
  const told: object[] = [];
  const [written, passed] = [deferred(), deferred()];
  const sent: unknown[] = [];
  const peer = {
    askStrays: () => strays,
    request: async (...request: unknown[]) => {
      sent.push(request[0]);
      return { result: {} };
    },
  };
  const group = { turn: async () => ({ peer, done: passed.resolve }), giveUp: () => {}, leave: () => {} };
  const lease = new PeerLease(group as never, { logger: { warn: () => {} }, replay: 'never' } as never);
  const transport = {
    start: async () => {},
    tell: (message: object) => told.push(message),
  } as unknown as HostTransport;
  await lease.connect(transport);
  const context = { call: {}, once: (_place: unknown, fn: () => unknown) => written.promise.then(fn) };
  runInContext(context as unknown as CallContext, () =>
    transport.onmessage?.({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'one' } }),
  );
  return { lease, transport, written, passed, sent, told };
}

it('a call waits to be sent for as long as its journal cannot say so', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  try {
    const { written, sent, told } = await journaled();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect([sent, told]).toEqual([[], []]);
    written.resolve();
    await vi.advanceTimersByTimeAsync(0);
    expect([sent, told]).toEqual([['tools/call'], [{ jsonrpc: '2.0', id: 1, result: {} }]]);
  } finally {
    vi.useRealTimers();
  }
});

describe.each([
  ['while its journal cannot say that it is sent', Promise.resolve()],
  ['before its client answers what its server asked at start', new Promise<void>(() => {})],
])('a call %s', (_when, strays) => {
  it.each([
    [
      'that is cancelled',
      ({ transport }: Awaited<ReturnType<typeof journaled>>) =>
        transport.onmessage?.({ jsonrpc: '2.0', method: CANCEL, params: { requestId: 1 } }),
    ],
    ['whose instance is over', ({ lease }: Awaited<ReturnType<typeof journaled>>) => lease.close()],
  ])('%s passes its turn on, and is not sent', async (_what, end) => {
    const call = await journaled(strays);
    const { lease, written, passed, sent } = call;
    await nextTurn();
    end(call);
    await passed.promise;
    expect(lease.isBusy).toBe(false);
    written.resolve();
    await nextTurn();
    expect(sent).toEqual([]);
  });
});

it('a list of tools that is lost on its way from a server is asked for again', async () => {
  const asked: unknown[] = [];
  const openLink = (events: LinkEvents) => ({
    isConcurrent: true,
    close: async () => {},
    kill: () => {},
    send: ({ id, method }: Readonly<Record<string, unknown>>) => {
      if (id === undefined) return;
      asked.push(method);
      const isLost = method === 'tools/list' && asked.filter((one) => one === method).length === 1;
      queueMicrotask(() => {
        if (isLost) events.lost?.(id as number, 'the connection broke');
        else events.message({ jsonrpc: '2.0', id, result: { tools: [] } });
      });
    },
  });
  const account = (breakOff: () => void) => new Budget(1_000).open({}, breakOff);
  const options = { name: 'remote', startTimeout: 1_000, askTimeout: 0, logger: new LogBook(), account };
  const concurrent = await Peer.open(openLink, NOBODY, options);
  const lease = new PeerLease({ concurrent } as never, { logger: new LogBook(), replay: 'safe' } as never);
  const told: object[] = [];
  const transport = {
    start: async () => {},
    tell: (message: object) => told.push(message),
    lose: (...lost: unknown[]) => told.push(lost),
  } as unknown as HostTransport;
  await lease.connect(transport);
  transport.onmessage?.({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'one' } });
  await expect.poll(() => told).toMatchObject([{ id: 1, result: {} }]);
  expect(asked).toEqual(['initialize', 'tools/list', 'tools/list', 'tools/call']);
});
