/** A race of an ask and a timer never acts on both branches: a parked frame may compute, but not act (invariant 2). */
import { afterEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, post, textOf } from './clients.ts';
import { CELLS, optionsOf, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

describe.each(CELLS)('a race of an ask and a timer ($name)', (cell) => {
  const begin = async () => {
    const done: string[] = [];
    served = await serveHere(() => buildServer((effect) => done.push(effect)), optionsOf(cell));
    const race = { tool: 'race' };
    const { state, keys } = await post(served.url, race);
    expect(keys).toHaveLength(1);
    const responses = accept(keys, { name: 'Ann' });
    const acted = (): string[] => done.filter((effect) => effect !== 'timer fired');
    return { done, acted, answer: () => post(served.url, { ...race, state, responses }) };
  };

  it('acts on neither branch while no process has the turn, though the timer fired', async () => {
    const { done, acted } = await begin();
    await post(served.url, { tool: 'ring' });
    await expect.poll(() => done).toContain('timer fired');
    // Another call takes the event loop round, and more.
    await post(served.url, { tool: 'one' });
    expect(acted()).toEqual([]);
  });

  it('acts on one branch, when the answer comes after the timer', async () => {
    const { done, acted, answer } = await begin();
    await post(served.url, { tool: 'ring' });
    await expect.poll(() => done).toContain('timer fired');
    const winner = textOf(await answer());
    expect(acted()).toEqual([winner === 'timer' ? 'cancel' : 'ship']);
  });

  it('acts on the answer, when it comes first', async () => {
    const { acted, answer } = await begin();
    expect(textOf(await answer())).toBe('answer');
    expect(acted()).toEqual(['ship']);
  });
});
