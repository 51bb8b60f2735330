/** A connection whose store cannot be read for a while, however often it is told meanwhile that there is more. */
import { expect, it } from 'vitest';
import type { Projected } from '../../src/stream/tail.ts';
import { countTurns, mostInOne } from '../loop-turns.ts';
import { Connection, FakeClock, tailOf, until } from './workbench.ts';

const written = (from: number, to: number): [number, Projected][] =>
  Array.from({ length: to - from + 1 }, (_, nth) => [
    from + nth,
    { kind: 'events', events: [{ data: String(from + nth) }] },
  ]);

function away() {
  const clock = new FakeClock();
  const sink = new Connection();
  const log = new Map<number, Projected>();
  const store = { isAway: false, reads: 0 };
  const tail = tailOf(clock, sink, log, async (at) => {
    store.reads += 1;
    if (store.isAway) throw new Error('the store is away');
    return log.get(at);
  });
  return { clock, sink, log, store, tail };
}

it('reads no sooner than it would, and goes on once the store is back', async () => {
  const { clock, sink, log, store, tail } = away();
  tail.offer(1, written(1, 1)[0]?.[1] as Projected);
  tail.start(false);
  store.isAway = true;
  for (let nth = 0; nth < 50; nth += 1) {
    tail.look();
    await new Promise(setImmediate);
  }
  expect([store.reads, sink.ended]).toEqual([1, undefined]);
  for (const [at, entry] of written(2, 3)) log.set(at, entry);
  store.isAway = false;
  await clock.pass(2_000);
  expect(sink.data).toEqual(['1', '2', '3']);
});

it('stays for a client that has no id to come back with', async () => {
  const { clock, sink, log, store, tail } = away();
  store.isAway = true;
  tail.start(true);
  await until(() => store.reads === 1);
  await new Promise(setImmediate);
  await clock.pass(50_000);
  expect([store.reads > 5, sink.ended]).toEqual([true, undefined]);
  for (const [at, entry] of written(1, 2)) log.set(at, entry);
  store.isAway = false;
  await clock.pass(2_000);
  expect(sink.data).toEqual(['1', '2']);
});

it('holds the event loop no longer after it than before', async () => {
  const { clock, sink, log, store, tail } = away();
  for (const [at, entry] of written(1, 30)) log.set(at, entry);
  const turns = countTurns();
  const sent: number[] = [];
  const give = sink.send.bind(sink);
  sink.send = (...event) => {
    sent.push(turns.now);
    if (sent.length === 5) store.isAway = true;
    return give(...event);
  };
  tail.start(true);
  await until(() => store.reads === 6);
  store.isAway = false;
  await clock.pass(2_000);
  await until(() => sink.data.length === 30);
  turns.stop();
  expect(mostInOne(sent)).toBe(1);
});
