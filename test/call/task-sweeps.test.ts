/** A dead owner's tasks are taken over by the sweeper of another process, whatever the owner's last sign of life was. */
import { afterEach, describe, expect, it } from 'vitest';
import { type Sweeper, sweepTasks } from '../../src/call/task/sweeper.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';
import { MemoryStore, pause, type Tool, until } from './bench.ts';
import {
  accepted,
  begin,
  isAsking,
  isOver,
  LEASE,
  type Process,
  processOf,
  resultIn,
  taskOf,
  update,
  view,
  viewed,
  wish,
} from './tasks-bench.ts';

let sweeper: Sweeper | undefined;
afterEach(() => sweeper?.stop());

function sweeping(process: Process, id: string): void {
  const { tasks } = process.engine;
  if (tasks === undefined) throw new Error('no tasks');
  sweeper = sweepTasks({
    clock: steadyClock,
    lease: LEASE,
    added: async () => [id],
    store: process.store,
    progress: (task, from) => tasks.progress(task, from),
    runsHere: (task) => tasks.runs(task),
    hasRoom: () => true,
    takeUp: (call, at) => process.engine.takeUpTask(call, at),
    failed: (error) => {
      throw error;
    },
  });
}

/** Asks once; the step behind it takes longer than its first owner lives. */
function slow() {
  const begun: number[] = [];
  const tool: Tool = async ({ elicit, step }) => {
    const { content } = await elicit('one');
    return step('long', () => {
      begun.push(begun.length);
      return begun.length === 1 ? new Promise<never>(() => {}) : content;
    });
  };
  return { begun, tool };
}

describe('a task whose owner died', () => {
  for (const signs of ['no sign', 'a sign'] as const) {
    for (const client of ['polls', 'asks for nothing'] as const) {
      it(`behind an answer from elsewhere, with ${signs} since, is gone on with where its client ${client}`, async () => {
        const shared = new MemoryStore(LEASE);
        const { begun, tool } = slow();
        const [owner, other, third] = [
          processOf(tool, shared),
          processOf(tool, shared),
          processOf(tool, shared),
        ];
        const id = taskOf(await begin(owner, wish()).outcome);
        const { asks } = await viewed(third, id, isAsking);
        await update(third, id, accepted(asks));
        await until(() => begun.length === 1);
        // The answer is the log's last entry, and so it is what the sign tells of.
        const last = shared.types().length - 1;
        if (signs === 'a sign') await until(() => shared.beats.get(id)?.startsWith(`${last}.`) === true);
        owner.die();
        if (client === 'polls') await view(other, id);
        sweeping(other, id);
        const since = steadyClock.elapsed();
        while (steadyClock.elapsed() - since < 20 * LEASE && begun.length < 2) {
          if (client === 'polls') await view(other, id);
          await pause(LEASE / 5);
        }
        expect(begun).toHaveLength(2);
        expect(resultIn((await viewed(other, id, isOver)).response)).toEqual({ a: 're: one' });
      });
    }
  }
});
