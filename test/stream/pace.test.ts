/** A peer gets every event once, in its order, however often it falls behind, and however soon it catches up. */
import fc from 'fast-check';
import { it } from 'vitest';
import type { Projected } from '../../src/stream/tail.ts';
import { Connection, FakeClock, tailOf, until } from './workbench.ts';

/** Turns of the queue of microtasks, or one of the event loop. */
const pauses = fc.constantFrom(0, 1, 2, 3, 4, 6, 'turn' as const);

async function pause(length: number | 'turn'): Promise<void> {
  if (length === 'turn') await new Promise(setImmediate);
  else for (let nth = 0; nth < length; nth += 1) await undefined;
}

it('falls behind in an entry, between two, and while it is read for', () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 6 }),
      fc.nat({ max: 6 }),
      fc.array(fc.tuple(fc.integer({ min: 1, max: 4 }), pauses), { minLength: 1, maxLength: 8 }),
      pauses,
      async (entries, before, peer, between) => {
        const clock = new FakeClock();
        const sink = new Connection();
        const log = new Map<number, Projected>();
        const all: string[] = [];
        const write = (nth: number): Projected => {
          const events = Array.from({ length: entries[nth] ?? 0 }, (_, at) => ({ data: `${nth}.${at}` }));
          all.push(...events.map(({ data }) => data));
          const entry: Projected = { kind: 'events', events };
          log.set(nth + 1, entry);
          return entry;
        };
        const there = Math.min(before, entries.length);
        for (let nth = 0; nth < there; nth += 1) write(nth);
        let reads = 0;
        const give = sink.send.bind(sink);
        const next = (): (typeof peer)[number] => peer[reads++ % peer.length] ?? [1, 0];
        [sink.room] = next();
        sink.send = (...args) => {
          const keepsUp = give(...args);
          if (!keepsUp) {
            const [room, length] = next();
            void pause(length).then(() => sink.take(room));
          }
          return keepsUp;
        };
        const tail = tailOf(clock, sink, log);
        tail.start(there > 0);
        for (let nth = there; nth < entries.length; nth += 1) {
          await pause(between);
          tail.offer(nth + 1, write(nth));
        }
        await until(() => sink.data.length >= all.length);
        await pause('turn');
        if (sink.data.join() !== all.join()) throw new Error(`${sink.data} is not ${all}`);
      },
    ),
    { numRuns: 500 },
  ));
