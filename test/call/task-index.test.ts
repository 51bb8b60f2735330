/** Which tasks there are: rows that many processes append to, and that are read while they grow. */
import { describe, expect, it } from 'vitest';
import { AwaitError } from '../../src/base/values.ts';
import { type SeenRows, TaskIndex } from '../../src/call/task/index.ts';
import { sweepTasks } from '../../src/call/task/sweeper.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';
import { pause, until } from './bench.ts';

const HOUR = 3_600_000;
const rowNames = (owner: string | null): [string] => [owner ?? 'everybody'];

function recordsOf() {
  const kept = new Map<string, unknown>();
  let reads = 0;
  let inserts = 0;
  let failures = 0;
  const tick = () => new Promise<void>((resolve) => setImmediate(resolve));
  return {
    kept,
    reads: () => reads,
    inserts: () => inserts,
    failAt: (read: number) => {
      failures = reads + read;
    },
    records: {
      insert: async (name: string, value: unknown) => {
        inserts += 1;
        await tick();
        if (kept.has(name)) return false;
        kept.set(name, value);
        return true;
      },
      get: async (name: string) => {
        reads += 1;
        if (reads === failures) throw new Error('the store is down');
        await tick();
        return kept.get(name);
      },
    },
  };
}

async function all(index: TaskIndex, owner: string, size: number): Promise<string[]> {
  const ids: string[] = [];
  for (let cursor: string | undefined, page = 0; page < 1_000; page += 1) {
    const found = await index.list(owner, cursor, size);
    expect(found.ids.length).toBeLessThanOrEqual(size);
    ids.push(...found.ids);
    cursor = found.next;
    if (cursor === undefined) return ids;
  }
  throw new Error('it never ends');
}

describe('the index of tasks', () => {
  it('writes a record for each task, and as many more as other processes were faster', async () => {
    for (const processes of [1, 3]) {
      const { records, inserts, reads } = recordsOf();
      const indexes = Array.from(
        { length: processes },
        () => new TaskIndex(records, rowNames, HOUR, () => HOUR),
      );
      const ids = Array.from({ length: 200 }, (_, nth) => `task-${nth}`);
      await Promise.all(ids.map((id, nth) => indexes[nth % processes]?.add(id, undefined)));
      expect(inserts()).toBeLessThanOrEqual(200 * processes);
      expect(reads()).toBeLessThanOrEqual(processes === 1 ? 1 : 2 * 200 * processes);
    }
  });

  it('loses nothing and has no holes where many processes append at once', async () => {
    const { records, kept } = recordsOf();
    const indexes = Array.from({ length: 5 }, () => new TaskIndex(records, rowNames, HOUR, () => 10 * HOUR));
    const ids = Array.from({ length: 100 }, (_, nth) => `task-${nth}`);
    await Promise.all(ids.map((id, nth) => indexes[nth % 5]?.add(id, nth % 2 === 0 ? 'ann' : undefined)));
    const positions = new Map<string, number[]>();
    for (const name of kept.keys()) {
      const [row = '', at] = name.split(':');
      positions.set(row, [...(positions.get(row) ?? []), Number.parseInt(at ?? '', 10)]);
    }
    for (const taken of positions.values())
      expect(taken.sort((a, b) => a - b)).toEqual(taken.map((_, nth) => nth + 1));
    const [index] = indexes;
    expect((await index?.added(new Map()))?.sort()).toEqual([...ids].sort());
    for (const size of [1, 7, 50, 51]) {
      const listed = await all(new TaskIndex(records, rowNames, HOUR, () => 10 * HOUR), 'ann', size);
      expect(listed.sort()).toEqual(ids.filter((_, nth) => nth % 2 === 0).sort());
    }
  });

  it('is paged completely and in order while tasks are added, over hours and over days', async () => {
    for (const ttl of [HOUR, 5 * HOUR, 48 * HOUR]) {
      const { records } = recordsOf();
      let now = 1_000 * HOUR;
      const index = new TaskIndex(records, rowNames, ttl, () => now);
      const before: string[] = [];
      for (let nth = 0; nth < 12; nth += 1) {
        now += (ttl / 12) * 0.9;
        before.unshift(`task-${nth}`);
        await index.add(`task-${nth}`, 'ann');
      }
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await index.list('ann', cursor, 2);
        seen.push(...page.ids);
        cursor = page.next;
        await index.add(`later-${seen.length}`, 'ann');
      } while (cursor !== undefined);
      expect(seen).toEqual(before);
    }
  });

  it('tells what was added once, also where a read fails in between', async () => {
    const { records, failAt } = recordsOf();
    const index = new TaskIndex(records, rowNames, HOUR, () => 10 * HOUR);
    for (const id of ['one', 'two', 'three']) await index.add(id, undefined);
    for (let failure = 1; failure < 8; failure += 1) {
      const seen: SeenRows = new Map();
      failAt(failure);
      const told = await index.added(seen).catch((): string[] => []);
      told.push(...(await index.added(seen)));
      expect([failure, told]).toEqual([failure, ['one', 'two', 'three']]);
      expect(await index.added(seen)).toEqual([]);
    }
  });

  it('tells of many a part at a time, each once, and those of an hour that is over too', async () => {
    const { records } = recordsOf();
    let now = 10 * HOUR;
    const index = new TaskIndex(records, rowNames, 6 * HOUR, () => now);
    const ids = Array.from({ length: 12_000 }, (_, nth) => `task-${nth}`);
    for (const id of ids) {
      if (id === 'task-11000') now += 4 * HOUR;
      await index.add(id, undefined);
    }
    const seen: SeenRows = new Map();
    const told: string[] = [];
    for (let nth = 0; nth < 3; nth += 1) {
      const part = await index.added(seen);
      expect(part.length).toBeLessThan(5_100);
      told.push(...part);
    }
    expect(told.sort()).toEqual(ids.sort());
    expect(await index.added(seen)).toEqual([]);
  });

  it('reads no more for a cursor that somebody made up', async () => {
    const { records, reads } = recordsOf();
    const index = new TaskIndex(records, rowNames, HOUR, () => 10 * HOUR);
    await index.add('one', 'ann');
    for (const cursor of ['zzzzzz.1.0', 'zzzzzzzzzzzzzzzzzzzz.zzzzzzzzzzzz.z', '0.0.0', '-1.5', '']) {
      const before = reads();
      const { ids } = await Promise.race([
        index.list('ann', cursor, 10),
        pause(500).then(() => ({ ids: ['it hangs'] })),
      ]);
      expect(ids.length === 0 || ids[0] === 'one').toBe(true);
      expect(reads() - before).toBeLessThan(50);
    }
  });
});

describe('the sweeper', () => {
  it('takes nothing up once it is stopped', async () => {
    let answer = (): void => {};
    let isAsked = false;
    const taken: string[] = [];
    const call = { id: 'one' } as never;
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease: 10,
      added: async () => [],
      store: { heard: async () => undefined, failures: 0 },
      progress: () =>
        new Promise((resolve) => {
          isAsked = true;
          answer = () => resolve({ call, at: 0, left: true });
        }),
      runsHere: () => false,
      hasRoom: () => true,
      takeUp: async () => void taken.push('one'),
      failed: () => {},
    });
    sweeper.watch('one');
    await until(() => isAsked);
    sweeper.stop();
    answer();
    await pause(20);
    expect(taken).toEqual([]);
  });

  it('reads no journal while the owners live, and one at once where an owner gave its task up', async () => {
    let signs = 0;
    let reads = 0;
    const left = new Set<string>();
    const taken: string[] = [];
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease: 20,
      added: async () => Array.from({ length: 50 }, (_, nth) => String(nth)),
      store: {
        failures: 0,
        heard: async (id) => {
          signs += 1;
          return left.has(id) ? 'left' : String(signs);
        },
      },
      progress: async (id) => {
        reads += 1;
        return { call: { id } as never, at: 0, left: left.has(id) };
      },
      runsHere: (id) => taken.includes(id),
      hasRoom: () => true,
      takeUp: async ({ id }) => void taken.push(id),
      failed: () => {},
    });
    await until(() => signs > 200);
    expect(reads).toBe(0);
    left.add('7');
    await until(() => taken.length > 0);
    sweeper.stop();
    expect([reads, taken]).toEqual([1, ['7']]);
  });

  it('looks in each round at a task that lives, however many others are over', async () => {
    let rounds = 0;
    const looks: number[] = [];
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease: 20,
      added: async () => {
        rounds += 1;
        const over = Array.from({ length: 6_000 }, (_, nth) => `${rounds} ${nth}`);
        return rounds === 1 ? ['lives', ...over] : over;
      },
      store: {
        failures: 0,
        heard: async (id) => {
          if (id !== 'lives') return undefined;
          looks.push(rounds);
          return String(rounds);
        },
      },
      progress: async () => undefined,
      runsHere: () => false,
      hasRoom: () => true,
      takeUp: async () => {},
      failed: () => {},
    });
    await until(() => rounds > 8);
    sweeper.stop();
    expect(looks.slice(0, 8)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('looks at others where the logs of some cannot be read', async () => {
    const looked = new Set<string>();
    let failures = 0;
    const over = Array.from({ length: 100 }, (_, nth) => `over ${nth}`);
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease: 20,
      added: async () => [...Array.from({ length: 8 }, (_, nth) => `damaged ${nth}`), ...over],
      store: { failures: 0, heard: async (id) => (id.startsWith('damaged') ? 'a sign' : undefined) },
      progress: async (id) => {
        if (id.startsWith('damaged')) throw new AwaitError('format', 'damaged');
        looked.add(id);
        return undefined;
      },
      runsHere: () => false,
      hasRoom: () => true,
      takeUp: async () => {},
      failed: () => {
        failures += 1;
      },
    });
    await until(() => failures > 3);
    sweeper.stop();
    expect(looked.size).toBe(100);
  });

  it('takes no task over while the store fails, since its owner cannot write either', async () => {
    let failures = 0;
    let isDown = true;
    const taken: string[] = [];
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease: 20,
      added: async () => ['7'],
      store: {
        get failures() {
          return failures;
        },
        heard: async () => {
          if (isDown) failures += 1;
          return 'the same sign';
        },
      },
      progress: async (id) => ({ call: { id } as never, at: 0, left: false }),
      runsHere: (id) => taken.includes(id),
      hasRoom: () => true,
      takeUp: async ({ id }) => void taken.push(id),
      failed: () => {},
    });
    await until(() => failures > 20);
    expect(taken).toEqual([]);
    isDown = false;
    await until(() => taken.length > 0);
    sweeper.stop();
  });

  /** A process that looks after the tasks of one that is dead. */
  function survivor(count: number, takeUp: (nth: number) => Promise<unknown>) {
    const taken = new Set<string>();
    const lease = 60;
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease,
      added: async () => Array.from({ length: count }, (_, nth) => String(nth)),
      store: { heard: async () => undefined, failures: 0 },
      progress: async (id) => ({ call: { id } as never, at: 0, left: false }),
      runsHere: (id) => taken.has(id),
      hasRoom: () => true,
      takeUp: async ({ id }) => {
        await takeUp(Number(id));
        taken.add(id);
      },
      failed: () => {},
    });
    return { taken, sweeper };
  }

  it('takes over any number, a dozen at once', async () => {
    let now = 0;
    let most = 0;
    const { taken, sweeper } = survivor(100, async () => {
      now += 1;
      most = Math.max(most, now);
      await pause(1);
      now -= 1;
    });
    await expect.poll(() => taken.size).toBe(100);
    sweeper.stop();
    expect(most).toBe(12);
  });

  it('continues with others where some never come up', async () => {
    const { taken, sweeper } = survivor(40, (nth) => (nth < 15 ? new Promise(() => {}) : pause(1)));
    await until(() => taken.size === 25);
    sweeper.stop();
  });
});
