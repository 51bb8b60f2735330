/** Calls that begin in one moment, as those do whose records come in one reply of the store: their results may be long. */
import { expect, it } from 'vitest';
import { pause, resultOf, start, workbench } from './bench.ts';

const MANY = 20;
const AT_ONCE = 4;

let begun: number;
const tool = async (): Promise<string> => {
  begun += 1;
  return 'done';
};
const together = (drain: number) => {
  begun = 0;
  const { engine } = workbench(tool, { limits: { drain } });
  return { engine, outcomes: Array.from({ length: MANY }, () => start(engine)) };
};

it('begin four in each turn of the event loop, and all end', async () => {
  const { outcomes } = together(1_000);
  const counts: number[] = [];
  while (begun < MANY) {
    const before = begun;
    await new Promise(setImmediate);
    counts.push(begun - before);
  }
  expect(Math.max(...counts)).toBeLessThanOrEqual(AT_ONCE);
  expect((await Promise.all(outcomes)).map(resultOf)).toEqual(Array(MANY).fill('done'));
});

it('do not begin once their clients were told that the process leaves', async () => {
  const { engine, outcomes } = together(0);
  while (begun === 0) await Promise.resolve();
  await engine.close();
  await pause(50);
  const ends = await Promise.all(outcomes);
  const done = ends.filter((end) => end.kind === 'responded' && 'result' in end.response);
  expect([done.length, begun]).toEqual([AT_ONCE, AT_ONCE]);
});
