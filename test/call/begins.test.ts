/** Calls that begin in one moment, as those do whose records come in one reply of the store: their results may be long. */
import { expect, it } from 'vitest';
import { countTurns, mostInOne } from '../loop-turns.ts';
import { resultOf, start, workbench } from './bench.ts';

const MANY = 20;
const AT_ONCE = 4;

it('begin four in each turn of the event loop, and all end', async () => {
  const turns = countTurns();
  const begun: number[] = [];
  const { engine } = workbench(async () => {
    begun.push(turns.now);
    return 'done';
  });
  const outcomes = await Promise.all(Array.from({ length: MANY }, () => start(engine)));
  turns.stop();
  expect(outcomes.map(resultOf)).toEqual(Array(MANY).fill('done'));
  expect(begun).toHaveLength(MANY);
  expect(mostInOne(begun)).toBe(AT_ONCE);
});
