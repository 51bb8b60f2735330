/**
 * Long results that come in one moment: four are being written, the others wait outside of the heap, and their calls are
 * as safe meanwhile as while their tools ran.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deferred } from '../../src/base/values.ts';
import type { CallRecord, Entry } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import {
  answers,
  BINDING,
  beginResumable,
  listening,
  MemoryStore,
  pause,
  requestContextOf,
  resultOf,
  type Suspended,
  start,
  suspended,
  type Tool,
  until,
  workbench,
} from './bench.ts';

const LIMITS = { lease: 60, turnWait: 5_000, drain: 200 };
const LENGTH = 100_000;
const MANY = 6;
const AT_ONCE = 4;

/** Ends of calls wait until a test lets them in. */
class SlowStore extends MemoryStore {
  readonly opened = deferred();
  waiting = 0;

  override async insertEntry(call: CallRecord, position: number, entry: Entry): Promise<boolean> {
    if (entry.type === 'ended') {
      this.waiting += 1;
      await this.opened.promise;
    }
    return super.insertEntry(call, position, entry);
  }
}

let charged: string[];
let store: SlowStore;
let calls: Suspended[];

const tool: Tool = async ({ elicit, step }) => {
  const { content } = (await elicit('one')) as { content: { a: string } };
  await step('charge', ({ idempotencyKey }) => charged.push(idempotencyKey));
  return content.a.padEnd(LENGTH, 'x');
};

const bench = () => workbench(tool, { store, limits: LIMITS, parts: { replay: () => 'never' } });
const resume = ({ engine }: ReturnType<typeof bench>, one: Suspended, gone?: AbortSignal) =>
  engine.resume(one.token, BINDING, answers(one), requestContextOf({ ...(gone && { signal: gone }) }));

/** All tools are done, and the last outcomes wait. */
async function begun(owner: ReturnType<typeof bench>, gone?: AbortSignal) {
  for (let nth = 0; nth < MANY; nth += 1) calls.push(suspended(await start(owner.engine)));
  const outcomes = calls.map((one) => resume(owner, one, gone));
  await until(() => charged.length === MANY);
  await pause(4 * LIMITS.lease);
  expect(store.waiting).toBe(AT_ONCE);
  return outcomes;
}

const whole = { length: LENGTH, charged: MANY };
const found = async (outcomes: readonly Promise<Outcome>[]) => {
  const results = (await Promise.all(outcomes)).map((outcome) => String(resultOf(outcome)));
  return results.map(({ length }) => ({ length, charged: charged.length }));
};

beforeEach(() => {
  charged = [];
  calls = [];
  store = new SlowStore();
});
// Places belong to the process.
afterEach(() => store.opened.resolve());

describe('long results that come in one moment', () => {
  it('are written four at a time, and no other process takes those over that wait', async () => {
    const owner = bench();
    const outcomes = await begun(owner);
    const other = bench();
    const twins = calls.map((one) => resume(other, one));
    await pause(4 * LIMITS.lease);
    store.opened.resolve();
    expect(await found([...outcomes, ...twins])).toEqual(Array(2 * MANY).fill(whole));
  });

  it('are written although their clients have gone', async () => {
    const owner = bench();
    const gone = new AbortController();
    void (await begun(owner, gone.signal));
    gone.abort();
    await pause(LIMITS.lease);
    store.opened.resolve();
    await until(() => store.types().filter((type) => type === 'ended').length === MANY);
    expect(await found(calls.map((one) => resume(bench(), one)))).toEqual(Array(MANY).fill(whole));
  });

  it('are written by a process that leaves', async () => {
    const owner = bench();
    const outcomes = await begun(owner);
    const left = owner.engine.leave();
    await pause(300);
    store.opened.resolve();
    await left;
    expect(await found(outcomes)).toEqual(Array(MANY).fill(whole));
  });

  it('are written by a process that leaves, also where their calls go on without a request', async () => {
    const { engine } = workbench(
      async ({ step }) => {
        await step('charge', ({ idempotencyKey }) => charged.push(idempotencyKey));
        return 'y'.repeat(LENGTH);
      },
      { store, limits: LIMITS, parts: { replay: () => 'never' } },
    );
    const begun = Array.from({ length: MANY }, () => beginResumable(engine, listening().context).outcome);
    await until(() => store.waiting === AT_ONCE);
    const left = engine.leave();
    await pause(300);
    store.opened.resolve();
    await left;
    expect(await found(begun)).toEqual(Array(MANY).fill(whole));
  });

  it('do not keep those waiting that need no store', async () => {
    const owner = bench();
    const outcomes = await begun(owner);
    const plain = workbench(async () => 'y'.repeat(LENGTH), { store, limits: LIMITS });
    const direct = await Promise.all(Array.from({ length: MANY }, () => start(plain.engine)));
    expect(direct.map((outcome) => String(resultOf(outcome)).length)).toEqual(Array(MANY).fill(LENGTH));
    expect(store.waiting).toBe(AT_ONCE);
    store.opened.resolve();
    await Promise.all(outcomes);
  });

  it('fail by themselves where they are no JSON', async () => {
    const cyclic: unknown[] = ['z'.repeat(LENGTH)];
    cyclic.push(cyclic);
    const { engine } = workbench(
      async ({ elicit }) => {
        await elicit('one');
        return cyclic;
      },
      { store, limits: LIMITS },
    );
    store.opened.resolve();
    const asked = await Promise.all(Array.from({ length: MANY }, () => start(engine)));
    const outcomes = asked
      .map(suspended)
      .map((one) => engine.resume(one.token, BINDING, answers(one), requestContextOf()));
    const ended = await Promise.all(outcomes);
    expect(ended.map((outcome) => outcome.kind === 'responded' && 'error' in outcome.response)).toEqual(
      Array(MANY).fill(true),
    );
  });
});
