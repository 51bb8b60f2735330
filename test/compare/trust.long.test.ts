/** What a test must not pass over: mistakes in its scenario, and tools that fail, hang, or end their process. */
import { describe, expect, it } from 'vitest';
import { crashAt, everyRevision, type Scenario } from '../../src/compare/index.ts';
import '../../src/compare/vitest.ts';
import ending from '../fixtures/side-by-side/ending-server.ts';
import { shop } from '../fixtures/side-by-side/shop.ts';

const TWO = { revisions: ['2025-11-25', '2026-07-28'] as const, callers: false };
const build = () => shop('reserve');

describe('a problem', () => {
  const cases: readonly (readonly [string, Scenario['steps'][number], string])[] = [
    ['an unknown tool', { call: 'oder' }, 'there is no tool oder; the server has quit, crash'],
    ['arguments that the tool refuses', { call: 'add' }, 'Invalid arguments for tool add'],
    [
      'an unexpected isError',
      { call: 'refuse' },
      'fails with isError on every revision: not today (if that is meant, write expect: { isError: true })',
    ],
    [
      'an expected isError that does not come',
      { call: 'look', expect: { isError: true } },
      'expected a result with isError, and got "seen"',
    ],
    [
      'an answer that nobody used',
      { call: 'look', answers: [{ accept: { name: 'Ann' } }] },
      'nobody asks for answer 1, {"accept":{"name":"Ann"}}: it was asked nothing',
    ],
  ];
  it.each(cases)('is %s', async (_name, step, text) => {
    const { problems, differences } = await everyRevision(ending, { steps: [step] }, TWO);
    expect(problems).toEqual([{ step: 0, text: expect.stringContaining(text) }]);
    expect(differences).toEqual([]);
  });

  it('is no failure that is expected', async () => {
    const steps = [{ call: 'refuse', expect: { isError: true } }];
    expect((await everyRevision(ending, { steps }, TWO)).problems).toEqual([]);
  });

  it('is a tool that is slower than the limit, with the same words on every revision', async () => {
    const { problems, differences } = await everyRevision(
      ending,
      { timeout: 200, steps: [{ call: 'slow' }] },
      { callers: false },
    );
    expect(differences).toEqual([]);
    expect(problems).toEqual([
      {
        step: 0,
        text: expect.stringContaining('has no outcome after 200 ms on every revision; give it longer'),
      },
    ]);
  });

  it('is one for a crash, too', async () => {
    const steps = [{ call: 'order', expect: { text: 'bought nothing' } }];
    const { problems } = await crashAt(build, { ask: 1 }, { steps }, { revisions: ['2026-07-28'] });
    expect(problems[0]?.text).toBe('expected a result with "bought nothing" in it, and got "bought item 7"');
  });
});

it('an unknown key in a scenario in TypeScript is refused, with its place', async () => {
  const step = { call: 'order', expects: { text: 'bought' } };
  await expect(everyRevision(build, { steps: [step] }, TWO)).rejects.toThrow(
    'the scenario: steps.0: Unrecognized key: "expects"',
  );
  await expect(crashAt(build, 'every', { steps: [step] })).rejects.toThrow('Unrecognized key: "expects"');
});

it('a failed expectation begins with what failed', async () => {
  const scenario: Scenario = { steps: [{ call: 'order', expect: { text: 'sold' } }] };
  const failed: unknown = await expect(build)
    .toEqualOnEveryRevision(scenario, TWO)
    .catch((error: unknown) => error);
  const [head, ...rest] = String(failed).split('\n');
  expect(head).toBe('Error: ✗ step 1 (order): expected a result with "sold" in it, and got "bought item 7"');
  expect(rest.join('\n')).toContain('✗ mistake');
});
