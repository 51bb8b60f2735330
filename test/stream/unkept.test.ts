/** Entries that the log of a call has without their events: a connection that is there gets them, in their order. */
import { expect, it, vi } from 'vitest';
import type { Projected } from '../../src/stream/tail.ts';
import { Connection, FakeClock, tailOf, until } from './workbench.ts';

const entry = (...data: string[]): Projected => ({
  kind: 'events',
  events: data.map((one) => ({ data: one })),
});

it('reach a client that is behind, after the entries before them', async () => {
  const clock = new FakeClock();
  const log = new Map<number, Projected>();
  const sink = new Connection();
  sink.room = 1;
  const tail = tailOf(clock, sink, log);
  const write = (at: number, written: Projected, isKept: boolean): void => {
    log.set(at, isKept ? written : entry());
    tail.offer(at, written, isKept);
  };
  write(1, entry('a', 'b'), true);
  write(2, entry('c'), true);
  expect(sink.data).toEqual(['a']);
  write(3, entry('d', 'e'), false);
  write(4, entry('f'), false);
  await until(() => sink.data.length === 6);
  expect(sink.data).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
});

it('leave nothing waiting where the last of them is there before the connection', () => {
  const clock = new FakeClock();
  const sink = new Connection();
  const tail = tailOf(clock, sink, new Map());
  tail.offer(1, { ...entry('the response'), last: true } as Projected);
  const after = vi.spyOn(clock, 'after');
  tail.start(false);
  expect([sink.data, tail.isOpen, after.mock.calls]).toEqual([['the response'], false, []]);
});

it('are read again after a read that failed, although nothing more is written', async () => {
  const clock = new FakeClock();
  const sink = new Connection();
  const log = new Map([[1, { ...entry('the response'), last: true } as Projected]]);
  let fails = 1;
  const tail = tailOf(clock, sink, log, async (at) => {
    fails -= 1;
    if (fails >= 0) throw new Error('the store is away');
    return log.get(at);
  });
  tail.start(true);
  await until(() => fails === 0);
  await new Promise(setImmediate);
  await clock.pass(2_000);
  await until(() => sink.data.length === 1);
  expect([sink.data, tail.isOpen]).toEqual([['the response'], false]);
});
