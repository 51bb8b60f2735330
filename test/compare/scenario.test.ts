/** The published JSON Schema says of a scenario what the command line says. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { rest, scenarioSchema, steps } from '../../src/compare/scenario-schema.ts';

const { scenarioJsonSchema } = (await import(
  new URL('../../scripts/scenario-schema.mjs', import.meta.url).href
)) as { scenarioJsonSchema(format: object): object };
const published = z.fromJSONSchema(
  scenarioJsonSchema({ rest, steps }) as Parameters<typeof z.fromJSONSchema>[0],
);
const example: unknown = parse(
  readFileSync(new URL('../../examples/booking/scenario.yaml', import.meta.url), 'utf8'),
);
const page = readFileSync(new URL('../../docs/testing.md', import.meta.url), 'utf8');

it.each([
  ['the example', example],
  ['the one of the documentation', parse(/```yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? '')],
  [
    'a prompt, a resource, a sample',
    {
      steps: [
        { prompt: 'greet', with: { name: 'Ann' } },
        { read: 'diary://today', answers: [{ sample: 'x' }] },
      ],
    },
  ],
])('both take %s', (_name, scenario) => {
  expect(scenarioSchema.safeParse(scenario).error).toBeUndefined();
  expect(published.safeParse(scenario).error).toBeUndefined();
});

it.each([
  ['no steps', { steps: [] }],
  ['an unknown member', { steps: [{ call: 'x', arguments: {} }] }],
  ['two kinds of step in one', { steps: [{ call: 'x', list: 'tools' }] }],
  ['a list of what no server has', { steps: [{ list: 'toys' }] }],
  ['an answer that is a word', { steps: [{ call: 'x', answers: ['yes'] }] }],
  ['a time-out that is a word', { timeout: 'long', steps: [{ call: 'x' }] }],
])('both refuse %s', (_name, scenario) => {
  expect(scenarioSchema.safeParse(scenario).success).toBe(false);
  expect(published.safeParse(scenario).success).toBe(false);
});
