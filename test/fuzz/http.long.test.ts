/** A short run of the fuzz of whole requests; `npm run fuzz -- --requests 1000000` is the long one. */
import { expect, it } from 'vitest';
import { fuzzHttp } from './http.ts';

it('ends no process, leaves no rejection, and is never answered by 500, in 4,000 random requests', {
  timeout: 300_000,
}, async () => {
  const { sent, problems, byStatus } = await fuzzHttp({ requests: 4_000, seed: 4_000 });
  expect(problems).toEqual([]);
  expect(sent).toBe(4_000);
  // It means nothing unless much of it is served, and much refused.
  for (const status of [200, 202, 400, 404]) expect(byStatus.get(status) ?? 0).toBeGreaterThan(sent / 100);
});
