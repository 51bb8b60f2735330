/** The format of scenario files: one schema, from which the build makes the published JSON Schema, too. */
import { z } from 'zod/v4';
import type { Answering, Scenario } from './scenario.ts';

const json = z.record(z.string(), z.unknown());
const yes = z.literal(true);

const answer = z
  .strictObject({
    to: z.string().describe('A part of the question that it answers; by default the next one it fits'),
    accept: z.union([json, yes]).describe('The content of a form; true for a URL that the user opened'),
    decline: yes,
    cancel: yes,
    sample: z.string().describe('The text of a sampled message'),
  })
  .partial()
  .refine(
    (given) => ['accept', 'decline', 'cancel', 'sample'].filter((way) => way in given).length === 1,
    'an answer is one of accept, decline, cancel and sample',
  );

const answering = z.custom<Answering>((value) => typeof value === 'function', 'must be a list of answers');

const asking = {
  answers: z
    .union([z.array(answer), answering])
    .optional()
    .describe('By default forms are filled in from their schemas'),
  expect: z
    .strictObject({
      text: z.string().describe('A part of the text of the result'),
      error: z.int().describe('The code of a JSON-RPC error'),
      asks: z.array(z.string()).describe('The questions in order, each by a part of it'),
      isError: z.boolean().describe('Whether the result says that the tool failed; by default a mistake'),
      effects: z.literal('allowed').describe('What it does outside of steps may happen again'),
    })
    .partial()
    .optional(),
};

/** By the first member of each. */
export const steps = {
  call: z.strictObject({ call: z.string().describe('A tool'), with: json.optional(), ...asking }),
  prompt: z.strictObject({
    prompt: z.string().describe('A prompt'),
    with: z.record(z.string(), z.string()).optional(),
    ...asking,
  }),
  read: z.strictObject({ read: z.string().describe('The URI of a resource'), ...asking }),
  list: z.strictObject({ list: z.enum(['tools', 'prompts', 'resources']) }),
};

/** Chosen by its first member, so that an error names the kind of step that was meant. */
const step = z.unknown().transform((value, context) => {
  const words = typeof value === 'object' && value !== null ? Object.keys(value) : [];
  const kind = (['call', 'prompt', 'read', 'list'] as const).find((name) => words.includes(name));
  if (kind === undefined) {
    context.addIssue('a step is one of call, prompt, read and list, such as: call: book_flight');
    return z.NEVER;
  }
  const read = steps[kind].safeParse(value);
  if (read.success) return read.data;
  for (const { message, path } of read.error.issues)
    context.addIssue({ code: 'custom', message, path: [...path] });
  return z.NEVER;
});

/** The other members of a scenario. */
export const rest = {
  name: z.string().optional(),
  client: z
    .strictObject({
      capabilities: json.describe('By default forms, URLs, sampling and roots'),
      roots: z.array(z.string()).describe('URIs'),
    })
    .partial()
    .optional(),
  timeout: z
    .number()
    .positive()
    .optional()
    .describe('Milliseconds for each step, its answers included; 20000'),
  ignore: z.array(z.string()).optional().describe('Regular expressions of what is not compared'),
};

export const scenarioSchema = z.strictObject({
  ...rest,
  steps: z.array(step).min(1, 'a scenario needs at least one step'),
}) satisfies z.ZodType<Scenario>;
