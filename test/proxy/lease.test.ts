/** What a server elsewhere notifies of reaches its client's connection at once: nothing of it waits for a turn. */
import { expect, it } from 'vitest';
import { AwaitError, isUnpassed, nextTurn } from '../../src/base/values.ts';
import { HostTransport } from '../../src/host/transport.ts';
import { PeerLease } from '../../src/proxy/lease.ts';

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
