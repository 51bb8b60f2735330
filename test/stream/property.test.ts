/**
 * Interleavings: a store whose every operation ends on command, and two processes on it. In any order: no event is
 * lost, none comes twice to a connection, and events after a connection's claim go to that connection alone.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Relay } from '../../src/call/ports.ts';
import { memoryRelay } from '../../src/index.ts';
import { recordsName } from '../../src/stream/event-id.ts';
import type { StreamEntry } from '../../src/stream/log.ts';
import { memoryRecords, type StreamRecords } from '../../src/stream/records.ts';
import { Connection, FakeClock, SCOPE, startProcess } from './workbench.ts';

type Act = 'append' | 'follow here' | 'follow there' | 'leave';

/** Operations take effect at one moment and are answered at another, both of the test's choosing. */
function slowly(records: StreamRecords, scheduler: fc.Scheduler): StreamRecords {
  const act = async <T>(what: string, fn: () => Promise<T>): Promise<T> => {
    await scheduler.schedule(Promise.resolve(), `${what} goes`);
    const result = await fn();
    await scheduler.schedule(Promise.resolve(), `${what} comes`);
    return result;
  };
  return {
    insert: (name, value, expires) => act('insert', () => records.insert(name, value, expires)),
    get: (name) => act('get', () => records.get(name)),
    replace: (name, value, expires) => act('replace', () => records.replace(name, value, expires)),
    remove: (...names) => act('remove', () => records.remove(...names)),
  };
}

async function play(scheduler: fc.Scheduler, acts: readonly Act[], relay: Relay | undefined): Promise<void> {
  const clock = new FakeClock();
  const kept = memoryRecords(clock);
  const records = slowly(kept, scheduler);
  const options = { records, clock, ...(relay !== undefined && { relay }) };
  const [here, there] = [startProcess(options), startProcess(options)];
  const stream = here.open(SCOPE);
  const id = stream.id;
  const connections: { connection: Connection; after: number; isHere: boolean }[] = [];
  const first = new Connection();
  const tasks: Promise<unknown>[] = [];
  const written: string[] = [];
  let nth = 0;
  const append = (): void => {
    nth += 1;
    const data = String(nth);
    tasks.push(
      stream.append({ data }).then(
        (eventId) => written.push(eventId),
        () => undefined,
      ),
    );
  };
  tasks.push(here.find(id, 0, SCOPE).then((found) => found.follow(first)));
  connections.push({ connection: first, after: 0, isHere: true });
  append();
  const run = async (): Promise<void> => {
    for (let idle = 0; idle < 3; ) {
      if (scheduler.count() > 0) {
        idle = 0;
        await scheduler.waitNext(1);
      } else {
        idle += 1;
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  };
  await run();
  for (const act of acts) {
    if (act === 'append') append();
    else if (act === 'leave') connections.at(-1)?.connection.leave();
    else {
      const connection = new Connection();
      const after = Number(written.at(-1)?.split('_').at(-1) ?? 1);
      const isHere = act === 'follow here';
      connections.push({ connection, after, isHere });
      const at = isHere ? here : there;
      tasks.push(at.find(id, after, SCOPE).then((found) => found.follow(connection)));
    }
    for (let steps = 0; steps < 3 && scheduler.count() > 0; steps += 1) await scheduler.waitNext(1);
  }
  await run();
  const closing = stream.append({ data: 'end' }, true);
  await run();
  await closing;
  // A process that was not woken polls by itself.
  for (let looks = 0; looks < 8; looks += 1) {
    await clock.pass(1_000);
    await run();
  }
  await Promise.all(tasks);

  const log: StreamEntry[] = [];
  const events: number[] = [];
  const name = recordsName(id, SCOPE);
  for (let at = 1; ; at += 1) {
    const entry = (await kept.get(`${name}:${at}`)) as StreamEntry | undefined;
    if (entry === undefined) break;
    log.push(entry);
    if (entry.kind === 'event') events.push(at);
  }
  const told = written.map(sequenceOf);
  for (const at of told) expect(events, 'what was acknowledged is there').toContain(at);
  for (const { connection, after } of connections) {
    const got = connection.ids.map(sequenceOf);
    const expected = events.filter((at) => at > after).slice(0, got.length);
    expect(got, 'no gap, nothing twice, in order').toEqual(expected);
    if (connection.ended === 'finished') expect(got.at(-1) ?? after).toBe(events.at(-1));
  }
  const open = connections.filter(({ connection }) => connection.ended === undefined);
  for (const { connection } of open) expect(acts, `left: ${connection.data}`).toContain('leave');
  if (!acts.includes('leave')) {
    const finished = connections.filter(({ connection }) => connection.ended === 'finished');
    expect(finished.length, 'somebody has the end').toBeGreaterThan(0);
  }
  // An event that a connection got after another process claimed the stream was a replay: it came before a later claim
  // of its own.
  const self = log[0]?.writer;
  for (const { connection, isHere } of connections) {
    for (const at of connection.ids.map(sequenceOf)) {
      const isMine = (entry: StreamEntry | undefined): boolean => (entry?.reader === self) === isHere;
      const replayed = log.slice(at).some((entry) => entry.kind === 'claim' && isMine(entry));
      expect(replayed || isMine(log[at - 1]), `event ${at} went to the one who had claimed it`).toBe(true);
    }
  }
  await here.close();
  await there.close();
}

function sequenceOf(eventId: string): number {
  return Number(eventId.split('_').at(-1));
}

const acts = fc.array(
  fc.constantFrom<Act>('append', 'append', 'append', 'follow here', 'follow there', 'leave'),
  { minLength: 1, maxLength: 10 },
);

describe('interleavings', () => {
  for (const relayed of [false, true]) {
    it(`lose no event and give none twice, ${relayed ? 'with' : 'without'} a relay`, async () => {
      const property = fc.asyncProperty(fc.scheduler(), acts, (scheduler, plan) =>
        play(scheduler, plan, relayed ? memoryRelay() : undefined),
      );
      await fc.assert(property, { numRuns: 150 });
    });
  }
});
