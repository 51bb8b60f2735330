/** Tasks are bounded: how many run in a process, how many of one caller, and what each may write (invariant 14). */
import { describe, expect, it } from 'vitest';
import type { TaskWish } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { sweepTasks } from '../../src/call/task/sweeper.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';
import { answers, BINDING, errorOf, MemoryStore, pause, suspended, type Tool, until } from './bench.ts';
import {
  accepted,
  begin,
  isAsking,
  isOver,
  LEASE,
  type Process,
  processOf,
  resultIn,
  taskLeg,
  taskOf,
  update,
  view,
  viewed,
  wish,
} from './tasks-bench.ts';

const asks: Tool = async ({ elicit, step }) => {
  const one = await elicit('one');
  await step('work', () => 1);
  return [one.content, (await elicit('two')).content];
};
/** As `begin`, for a caller with a name. */
const beginFor = ({ engine }: Process, principal: string, task: TaskWish = wish()): Promise<Outcome> =>
  engine.start(
    {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client: { capabilities: taskLeg().capabilities, info: {}, protocolVersion: '2025-11-25' },
      binding: { ...BINDING, principal },
      task,
    },
    taskLeg(),
  ).outcome;

describe('limits.tasks', () => {
  it('refuses the request that would begin one more, and keeps nothing of it', async () => {
    const store = new MemoryStore(LEASE);
    const owner = processOf(asks, store, { limits: { tasks: 2 } });
    const ids = [taskOf(await begin(owner, wish()).outcome), taskOf(await begin(owner, wish()).outcome)];
    const before = store.entries.size;
    expect(errorOf(await begin(owner, wish()).outcome).message).toContain('exceeds a limit');
    await pause(20);
    expect(owner.log.map(({ message }) => message).join()).toContain('limits.tasks');
    expect([owner.began, owner.counts.opened - owner.counts.released]).toEqual([ids, 2]);
    expect([...store.entries.keys()].filter((key) => !ids.some((id) => key.startsWith(id)))).toEqual([]);
    expect(store.entries.size).toBeGreaterThanOrEqual(before);
    // One that is over makes room, however it ended.
    await owner.engine.tasks?.cancel(ids[0] ?? '', undefined);
    expect((await begin(owner, wish()).outcome).kind).toBe('task');
  });

  it('keeps a call that would become a task late as a call, and lets it finish', async () => {
    for (const how of [wish({ when: 'after-asks' }), wish({ when: 'late', after: 1, rounds: 1 })]) {
      const owner = processOf(asks, new MemoryStore(LEASE), { limits: { tasks: 1 } });
      await begin(owner, wish()).outcome;
      let outcome = await begin(owner, how).outcome;
      for (let round = 0; outcome.kind === 'suspended'; round += 1) {
        expect(round).toBeLessThan(3);
        await pause(5);
        outcome = await owner.engine.resume(outcome.token, BINDING, answers(suspended(outcome)), taskLeg());
      }
      expect(outcome).toMatchObject({
        response: { result: { value: [{ a: 're: one' }, { a: 're: two' }] } },
      });
    }
  });

  it('counts those that became one late', async () => {
    const owner = processOf(asks, new MemoryStore(LEASE), { limits: { tasks: 1 } });
    expect((await begin(owner, wish({ when: 'late', rounds: 1 })).outcome).kind).toBe('task');
    expect(errorOf(await begin(owner, wish()).outcome).message).toContain('exceeds a limit');
  });

  it('gives a task to a client that must get one, once its call is over', async () => {
    const tool: Tool = async () => 'done';
    const owner = processOf(tool, new MemoryStore(LEASE), { limits: { tasks: 1 } });
    const id = taskOf(await begin(owner, wish({ when: 'late', always: true })).outcome);
    expect(resultIn((await viewed(owner, id, isOver)).response)).toBe('done');
    expect((await begin(owner, wish()).outcome).kind).toBe('task');
  });

  it('has a full process leave what others had, until it has room', async () => {
    const store = new MemoryStore(LEASE);
    const owner = processOf(asks, store);
    const id = taskOf(await begin(owner, wish()).outcome);
    await viewed(owner, id, isAsking);
    const other = processOf(asks, store, { limits: { tasks: 1 } });
    const own = taskOf(await begin(other, wish()).outcome);
    owner.die();
    const { tasks } = other.engine;
    if (tasks === undefined) throw new Error('no tasks');
    const sweeper = sweepTasks({
      clock: steadyClock,
      lease: LEASE,
      added: async () => [id],
      store,
      progress: (call) => tasks.progress(call),
      runsHere: (call) => tasks.runs(call),
      hasRoom: ({ principal }) => tasks.hasRoom(principal),
      takeUp: (call, at) => other.engine.takeUpTask(call, at),
      failed: () => {},
    });
    await pause(LEASE * 3);
    expect(tasks.runs(id)).toBe(false);
    const found = await tasks.progress(id);
    if (found !== undefined) await other.engine.takeUpTask(found.call, found.at);
    expect([tasks.runs(id), store.types().includes('claimed')]).toEqual([false, false]);
    await tasks.cancel(own, undefined);
    await until(() => tasks.runs(id));
    sweeper.stop();
  });
});

describe('limits.callerTasks', () => {
  it('counts the tasks of callers with a name, each for itself, and of no other', async () => {
    const owner = processOf(asks, new MemoryStore(LEASE), { limits: { callerTasks: 1 } });
    expect((await beginFor(owner, 'ann')).kind).toBe('task');
    expect(errorOf(await beginFor(owner, 'ann')).message).toContain('exceeds a limit');
    expect((await beginFor(owner, 'bob')).kind).toBe('task');
    for (let nth = 0; nth < 3; nth += 1) expect((await begin(owner, wish()).outcome).kind).toBe('task');
    expect((await beginFor(owner, 'ann', wish({ when: 'late', rounds: 1 }))).kind).toBe('suspended');
  });
});

describe('limits.journalBytes', () => {
  const big = 'x'.repeat(1_000);

  it('ends a task whose steps return too much', async () => {
    let steps = 0;
    const tool: Tool = async ({ step }) => {
      for (;;) {
        await step('grow', () => {
          steps += 1;
          return big;
        });
      }
    };
    for (const how of [wish(), wish({ when: 'after-asks' })]) {
      steps = 0;
      const owner = processOf(tool, new MemoryStore(LEASE), { limits: { journalBytes: 10_000 } });
      const id = taskOf(await begin(owner, how).outcome);
      const seen = await viewed(owner, id, isOver);
      expect(seen.response).toMatchObject({ error: { message: expect.stringContaining('exceeds a limit') } });
      expect(steps).toBeLessThanOrEqual(10);
      expect(owner.log.map(({ message }) => message).join()).toContain('limits.journalBytes');
    }
  });

  it('ends a task whose answers are too large, and one that was taken over', async () => {
    const tool: Tool = async ({ elicit }) => {
      for (;;) await elicit('more');
    };
    const store = new MemoryStore(LEASE);
    const limits = { journalBytes: 10_000 };
    const owner = processOf(tool, store, { limits });
    const id = taskOf(await begin(owner, wish()).outcome);
    const answer = async (process: Process): Promise<void> => {
      const seen = await viewed(process, id, (task) => isAsking(task) || isOver(task));
      const given = Object.fromEntries(
        Object.keys(accepted(seen.asks)).map((key) => [key, { action: 'accept', content: { a: big } }]),
      );
      await update(process, id, given).catch(() => {});
      await viewed(process, id, ({ asks: open }) => !open.some(({ key }) => key in given));
    };
    for (let nth = 0; nth < 5; nth += 1) await answer(owner);
    owner.die();
    const other = processOf(tool, store, { limits });
    await pause(LEASE);
    const found = await other.engine.tasks?.progress(id);
    if (found !== undefined) await other.engine.takeUpTask(found.call, found.at);
    for (let nth = 0; nth < 5 && !isOver(await view(other, id)); nth += 1) await answer(other);
    const { response } = await viewed(other, id, isOver);
    expect(response).toMatchObject({ error: { message: expect.stringContaining('exceeds a limit') } });
  });
});
