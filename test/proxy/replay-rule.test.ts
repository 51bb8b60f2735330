/** Which calls may be run again, and what is kept of a server's list of tools: little, for as long as a link lives. */
import { describe, expect, it } from 'vitest';
import { memoryOf } from '../../src/base/values.ts';
import type { CallRecord, Completion } from '../../src/call/journal/entries.ts';
import { NOT_TAKEN, repeatableTools, replayRule } from '../../src/proxy/replay-rule.ts';

it('keeps the names that fit into 256 KiB', async () => {
  const long = 'x'.repeat(10_000_000);
  const names = ['a', { x: long }, long, ...Array.from({ length: 100_000 }, (_, nth) => `tool ${nth}`)];
  const tools = names.map((name) => ({ name, annotations: { readOnlyHint: true } }));
  const repeatable = await repeatableTools(async () => ({ result: { tools } }));
  expect(repeatable.size).toBeGreaterThan(1_000);
  expect(memoryOf([...repeatable])).toBeLessThan(300_000);
});

describe('a call that was sent may run from its start, if it', () => {
  const call = { method: 'tools/call', params: { name: 'one' } } as unknown as CallRecord;
  const once = { repeatable: false };
  const again = { repeatable: true };
  const noted = (...facts: unknown[]): Completion[] =>
    facts.map((value, nth) => ({
      kind: 'step',
      path: `/1:sent-to-server[]#${nth + 1}`,
      outcome: { value },
    })) as Completion[];

  it.each([
    ['was not sent', noted(), 'allow', 'allow'],
    ['was sent', noted(once), 'never', 'never'],
    ['was not taken', noted(once, NOT_TAKEN), 'allow', 'allow'],
    ['was sent again', noted(once, NOT_TAKEN, once), 'never', 'never'],
    ['was not taken twice', noted(once, NOT_TAKEN, once, NOT_TAKEN), 'allow', 'allow'],
    ['may be repeated', noted(again), 'allow', 'never'],
    ['may not be repeated as it was sent last', noted(again, once), 'never', 'never'],
  ] as const)('%s', (_what, done, safe, never) => {
    expect([replayRule('safe')(call, done), replayRule('never')(call, done)]).toEqual([safe, never]);
  });
});
