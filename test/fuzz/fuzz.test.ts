/** A short run of the token fuzz; `npm run fuzz -- --tokens 1000000` is the long one. */
import { expect, it } from 'vitest';
import { SHORT } from '../short.ts';
import { fuzz } from './fuzz.ts';

const TOKENS = SHORT ? 5_000 : 20_000;

it(`accepts none of ${TOKENS} damaged tokens, and answers all alike without the store`, {
  timeout: 300_000,
}, async () => {
  const { presented, byDamage, onWire, ...report } = await fuzz({ tokens: TOKENS, seed: 20_000, onWire: 10 });
  expect(report).toEqual({ touched: 0, accepted: [], different: [], problems: [] });
  expect(presented).toBe(TOKENS);
  expect(Math.min(...byDamage.values())).toBeGreaterThan(10);
  expect(onWire).toBeGreaterThan(byDamage.size * 10);
});
