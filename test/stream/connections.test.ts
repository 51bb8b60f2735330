/** Connections that read the reply of a call which runs here, and come and go at this process and another one. */
import { expect, it } from 'vitest';
import type { Entry } from '../../src/call/journal/entries.ts';
import { type CallConnection, CallConnections } from '../../src/stream/call-connections.ts';
import { Connection, FakeClock, until } from './workbench.ts';

/** The log of a call, whose entries are events with their types for data. */
function logOf(entries: Entry[]) {
  const clock = new FakeClock();
  const connections = new CallConnections({
    clock,
    read: async (_callId, position) => entries[position],
    wake: () => {},
  });
  const open = (connection: string, sequence?: number, isThere = true): [CallConnection, Connection] => {
    const sink = new Connection();
    const opened = connections.open({
      callId: 'call',
      expires: clock.now() + 60_000,
      project: ({ type }) => ({ kind: 'events', events: [{ data: type }], last: type === 'ended' }),
      expired: () => ({ data: 'expired' }),
      connection,
      ...(sequence !== undefined && { after: { sequence } }),
    });
    if (isThere) opened.attach(sink);
    return [opened, sink];
  };
  return { connections, open };
}

const reading = (connection: string): Extract<Entry, { type: 'reading' }> => ({
  type: 'reading',
  connection,
  by: 'elsewhere',
});

it('of which an older one is heard of late do not end a newer one', async () => {
  const entries: Entry[] = [{ type: 'left' }, reading('elsewhere'), reading('here')];
  const { connections, open } = logOf(entries);
  const [connection, sink] = open('here', 1);
  // The process that runs the call reads what the other one wrote, and then its own entry is written.
  connections.received('call', 1, reading('elsewhere'));
  connections.received('call', 2, reading('here'));
  entries.push({ type: 'ended', response: { result: {} } });
  connections.received('call', 3, entries[3] as Entry);
  await until(() => sink.data.length === 1);
  expect([sink.data, connection.hasEnd]).toEqual([['ended'], true]);
});

it.each([
  ['is behind', true],
  ['is not there yet', false],
])('end where the log was deleted while their client %s', async (_when, isThere) => {
  const entries: Entry[] = [];
  const { connections, open } = logOf(entries);
  const [connection, sink] = open('here', undefined, isThere);
  sink.room = 2;
  for (let at = 0; at < 20; at += 1) {
    entries.push({ type: at < 19 ? 'left' : 'held' });
    connections.received('call', at, entries[at] as Entry);
  }
  // Others need its room.
  entries.length = 0;
  if (!isThere) connection.attach(sink);
  sink.take(Infinity);
  await until(() => sink.ended !== undefined);
  expect(sink.ended).toBe('behind');
});

it('end where a newer one is in the log', async () => {
  const entries: Entry[] = [{ type: 'left' }];
  const { connections, open } = logOf(entries);
  const [connection, sink] = open('here');
  connections.received('call', 0, { type: 'left' });
  entries.push(reading('elsewhere'));
  connections.received('call', 1, reading('elsewhere'));
  await until(() => !connection.isOpen);
  expect(sink.data).toEqual(['left']);
});
