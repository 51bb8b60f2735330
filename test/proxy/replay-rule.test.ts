/** What is kept of a server's list of tools: names, for as long as a link lives, so little of them. */
import { expect, it } from 'vitest';
import { memoryOf } from '../../src/base/values.ts';
import { repeatableTools } from '../../src/proxy/replay-rule.ts';

it('keeps the names that fit into 256 KiB', async () => {
  const long = 'x'.repeat(10_000_000);
  const names = ['a', { x: long }, long, ...Array.from({ length: 100_000 }, (_, nth) => `tool ${nth}`)];
  const tools = names.map((name) => ({ name, annotations: { readOnlyHint: true } }));
  const repeatable = await repeatableTools(async () => ({ result: { tools } }));
  expect(repeatable.size).toBeGreaterThan(1_000);
  expect(memoryOf([...repeatable])).toBeLessThan(300_000);
});
