/** Tasks and other live calls that are taken over by another version of their tool. */
import { describe, expect, it } from 'vitest';
import { gate } from '../fixtures/gate.ts';
import {
  BINDING,
  beginResumable,
  errorOf,
  listening,
  MemoryStore,
  pause,
  requestContextOf,
  resultOf,
  type Tool,
  until,
} from './bench.ts';
import {
  accepted,
  begin,
  isAsking,
  isOver,
  LEASE,
  processOf,
  resultIn,
  sweep,
  taskOf,
  update,
  view,
  viewed,
  wish,
} from './tasks-bench.ts';

const schema = (name: string) => ({ [name]: { type: 'string' } });
const asksFor =
  (...names: string[]): Tool =>
  async ({ elicit }) => {
    const all = await Promise.all(names.map((name) => elicit(name, schema(name))));
    return all.map(({ content }) => content);
  };
const texts = async (...seen: Parameters<typeof view>): Promise<unknown[]> =>
  (await view(...seen)).asks.map(({ params }) => params.message);

/** A task of one version, taken up by another. */
async function upgraded(before: Tool, after: Tool, asks: number) {
  const store = new MemoryStore(LEASE);
  const [owner, other] = [processOf(before, store), processOf(after, store)];
  const id = taskOf(await begin(owner, wish()).outcome);
  const seen = await viewed(owner, id, ({ asks: open }) => open.length === asks);
  owner.die();
  await pause(LEASE);
  await sweep(other, id);
  return { store, other, id, asks: seen.asks };
}

it('ends with the error of a version that has not its tool: nobody brings it back', async () => {
  const lacks: Tool = () => Promise.reject(new Error('no such tool'));
  const { other, id } = await upgraded(asksFor('github'), lacks, 1);
  expect((await viewed(other, id, isOver)).response).toMatchObject({
    error: { message: 'Error: no such tool' },
  });
});

it('stays open where a request takes it over at a process that has not its tool', async () => {
  const store = new MemoryStore(LEASE);
  const done: string[] = [];
  const isStuck = gate();
  const pays: Tool = async ({ step }) => {
    await step('pay', () => void done.push('pay'));
    if (done.length === 1) await step('ship', () => isStuck.opened);
    return 'paid';
  };
  const lacks: Tool = () => Promise.reject(Object.assign(new Error('no such tool'), { code: -32602 }));
  const context = requestContextOf();
  const owner = processOf(pays, store);
  const begun = beginResumable(owner.engine, context);
  await until(() => done.length === 1);
  owner.die();
  const goOn = (tool: Tool) => processOf(tool, store).engine.takeUp(begun.callId, BINDING, context).outcome;
  expect(errorOf(await goOn(lacks)).message).toBe('Error: no such tool');
  done.push('elsewhere');
  expect(resultOf(await goOn(pays))).toBe('paid');
  expect(done).toEqual(['pay', 'elsewhere']);
});

describe('an ask that the next version never makes', () => {
  it('is taken back, and the others keep their keys', async () => {
    const { other, id, asks } = await upgraded(
      asksFor('github', 'google'),
      asksFor('github', 'microsoft'),
      2,
    );
    await viewed(
      other,
      id,
      ({ asks: open }) => open.length === 2 && open.some(({ params }) => params.message === 'microsoft'),
    );
    expect(await texts(other, id)).toEqual(['github', 'microsoft']);
    const open = (await view(other, id)).asks;
    expect(open[0]?.key).toBe(asks[0]?.key);
    await update(other, id, accepted(open));
    expect(resultIn((await viewed(other, id, isOver)).response)).toEqual([
      { a: 're: github' },
      { a: 're: microsoft' },
    ]);
  });

  it('is taken back while a new step runs instead of it', async () => {
    const work = gate();
    const { other, id } = await upgraded(
      asksFor('google'),
      async ({ step }) => {
        await step('slow', () => work.opened);
        return 'done';
      },
      1,
    );
    await viewed(other, id, ({ status }) => status === 'working');
    work.open();
    expect(resultIn((await viewed(other, id, isOver)).response)).toBe('done');
  });

  it('goes out again under its key where it is made after all', async () => {
    const work = gate();
    const { store, other, id, asks } = await upgraded(
      asksFor('github', 'google'),
      async ({ elicit }) => {
        const later = work.opened.then(() => elicit('google', schema('google')));
        const all = await Promise.all([elicit('github', schema('github')), later]);
        return all.map(({ content }) => content);
      },
      2,
    );
    await viewed(other, id, ({ asks: open }) => open.length === 1);
    expect(store.types().filter((type) => type === 'withdrawn')).toHaveLength(1);
    work.open();
    const { asks: again } = await viewed(other, id, ({ asks: open }) => open.length === 2);
    expect(new Set(again.map(({ key }) => key))).toEqual(new Set(asks.map(({ key }) => key)));
    await update(other, id, accepted(again));
    expect(resultIn((await viewed(other, id, isOver)).response)).toHaveLength(2);
  });

  it('stays as long as the tool has not come to anything: it may be slow to get there', async () => {
    const { store, other, id, asks } = await upgraded(
      asksFor('google'),
      async ({ elicit }) => {
        await pause(200);
        return (await elicit('google', schema('google'))).content;
      },
      1,
    );
    await pause(150);
    expect((await viewed(other, id, isAsking)).asks[0]?.key).toBe(asks[0]?.key);
    await pause(100);
    await update(other, id, accepted(asks));
    expect(resultIn((await viewed(other, id, isOver)).response)).toEqual({ a: 're: google' });
    expect(store.types()).not.toContain('withdrawn');
  });

  it('is taken back from the client of a live call', async () => {
    const store = new MemoryStore(LEASE);
    const [owner, other] = [
      processOf(asksFor('github', 'google'), store),
      processOf(asksFor('github'), store),
    ];
    const first = listening();
    const { callId } = beginResumable(owner.engine, first.context);
    await until(() => first.asked.length === 2);
    owner.die();
    const second = listening();
    const withdrawn: string[] = [];
    const context = { ...second.context, withdraw: ({ key }: { key: string }) => void withdrawn.push(key) };
    const { outcome, answer } = other.engine.takeUp(callId, BINDING, context);
    await until(() => withdrawn.length > 0);
    expect(withdrawn).toEqual([first.asked[1]?.key]);
    await answer(first.asked[0]?.key ?? '', { result: { action: 'decline' } });
    expect(await outcome).toMatchObject({ response: { result: { value: [undefined] } } });
  });
});
