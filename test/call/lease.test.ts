import { describe, expect, it } from 'vitest';
import {
  answers,
  BINDING,
  errorOf,
  MemoryStore,
  pause,
  requestContextOf,
  resultOf,
  start,
  suspended,
  type Tool,
  until,
  workbench,
} from './bench.ts';

const LIMITS = { lease: 60, turnWait: 2_000 };

/** A tool whose step takes as long as a test wants, and that counts its effects by their keys. */
function slowly() {
  const keys: string[] = [];
  const finishers: (() => void)[] = [];
  const tool: Tool = async ({ elicit, step }) => {
    await elicit('one');
    const first = await step('quick', ({ idempotencyKey }) => keys.push(`quick ${idempotencyKey}`));
    const receipt = await step('charge', async ({ idempotencyKey }) => {
      keys.push(`charge ${idempotencyKey}`);
      await new Promise<void>((resolve) => finishers.push(resolve));
      return 'receipt';
    });
    return [first, receipt];
  };
  return { keys, finishers, tool };
}

describe('a turn whose owner', () => {
  it('is alive is waited for, however long it takes', async () => {
    const { keys, finishers, tool } = slowly();
    const store = new MemoryStore();
    const [owner, other] = [
      workbench(tool, { store, limits: LIMITS }),
      workbench(tool, { store, limits: LIMITS }),
    ];
    const first = suspended(await start(owner.engine));
    const run = owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await until(() => keys.length === 2);
    const twin = other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await pause(4 * LIMITS.lease);
    expect(keys).toHaveLength(2);
    finishers[0]?.();
    expect([resultOf(await run), resultOf(await twin)]).toEqual([
      [1, 'receipt'],
      [1, 'receipt'],
    ]);
    expect(keys).toHaveLength(2);
  });

  it('is gone is taken over from the journal: what was in flight runs again, under its key, and nothing else', async () => {
    const { keys, finishers, tool } = slowly();
    const store = new MemoryStore();
    const owner = workbench(tool, { store: store.muted(), limits: LIMITS });
    const other = workbench(tool, { store, limits: LIMITS });
    const first = suspended(await start(owner.engine));
    const run = owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await until(() => keys.length === 2);
    const taken = other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await until(() => keys.length === 3);
    finishers[1]?.();
    expect(resultOf(await taken)).toEqual([1, 'receipt']);
    expect(keys[2]).toBe(keys[1]);
    // The first owner was only slow. It is fenced, and its client gets what the journal has.
    finishers[0]?.();
    expect(resultOf(await run)).toEqual([1, 'receipt']);
    expect(keys).toHaveLength(3);
  });

  it('is still at it after the longest wait makes others come again', async () => {
    const { keys, tool } = slowly();
    const store = new MemoryStore();
    const limits = { lease: 60, turnWait: 100 };
    const [owner, other] = [workbench(tool, { store, limits }), workbench(tool, { store, limits })];
    const first = suspended(await start(owner.engine));
    void owner.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    await until(() => keys.length === 2);
    const busy = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(errorOf(busy).message).toContain('send the same request again');
  });

  it('is gone, and may not be run again, has its outcome told where there is one', async () => {
    const store = new MemoryStore();
    const tool: Tool = ({ elicit }) => elicit('one');
    const owner = workbench(tool, { store });
    const other = workbench(tool, { store, parts: { replay: () => 'never' } });
    const first = suspended(await start(owner.engine));
    const refused = await other.engine.resume(first.token, BINDING, answers(first), requestContextOf());
    expect(errorOf(refused).code).toBe(-32603);
    const done = resultOf(
      await owner.engine.resume(first.token, BINDING, answers(first), requestContextOf()),
    );
    expect(
      resultOf(await other.engine.resume(first.token, BINDING, answers(first), requestContextOf())),
    ).toEqual(done);
  });
});
