/** Mistakes in a scenario or its server that show on every revision, and expectations that only some revisions meet. */
import { isObject } from '../../src/base/json.ts';
import { type Difference, quoted, short } from './differences.ts';
import { type Column, type PlayedStep, textOf } from './play.ts';
import type { Expectation, Scenario, Step } from './scenario.ts';
import { filledIn } from './user.ts';

/** A mistake in a scenario or its server, whatever the revision. */
export interface Problem {
  /** Index of the step in the scenario. */
  readonly step: number;
  /** The mistake, and what to write instead. */
  readonly text: string;
}

export function problemsIn(scenario: Scenario, columns: readonly Column[]): Problem[] {
  return scenario.steps.flatMap((step, index): Problem[] => {
    const played = columns.flatMap((column) => column.steps[index] ?? []);
    const found = [unansweredIn(played), failedIn(step, played), ...inAll(step, played)];
    return found.flatMap((text) => (text === undefined ? [] : [{ step: index, text }]));
  });
}

/** Expectations of the scenario that some columns do not meet. */
export function expectationDifferences(scenario: Scenario, columns: readonly Column[]): Difference[] {
  return scenario.steps.flatMap((step, index) => {
    const broken = columns.flatMap(({ name, steps }) => {
      const played = steps[index];
      return played === undefined ? [] : unmet(expectationOf(step), played).map((text) => ({ name, text }));
    });
    const isInAll = (text: string): boolean =>
      broken.filter((other) => other.text === text).length === columns.length;
    return broken
      .filter(({ text }) => !isInAll(text))
      .map(({ name, text }): Difference => ({ kind: 'expectation', step: index, columns: [name], text }));
  });
}

function inAll(step: Step, played: readonly PlayedStep[]): string[] {
  const [first, ...others] = played.map((one) => unmet(expectationOf(step), one));
  return (first ?? []).filter((text) => others.every((texts) => texts.includes(text)));
}

function expectationOf(step: Step): Expectation {
  return 'expect' in step ? (step.expect ?? {}) : {};
}

function unmet({ text, error, asks }: Expectation, step: PlayedStep): string[] {
  const found: string[] = [];
  if (text !== undefined && !textOf(step).includes(text)) {
    found.push(`expected a result with "${text}" in it, and got "${short(textOf(step))}"`);
  }
  const code = 'error' in step.outcome ? step.outcome.error.code : undefined;
  if (error !== undefined && code !== error) {
    found.push(`expected error ${error}, and got ${code === undefined ? 'a result' : `error ${code}`}`);
  }
  const asked = step.asks.map(({ question }) => question);
  if (
    asks !== undefined &&
    !(asks.length === asked.length && asks.every((ask, nth) => asked[nth]?.includes(ask)))
  ) {
    found.push(`expected to be asked ${quoted(asks)}, and was asked ${quoted(asked)}`);
  }
  return found;
}

/** A question without an answer on every revision that asked it is the scenario's mistake. */
function unansweredIn(played: readonly PlayedStep[]): string | undefined {
  const ask = played[0]?.unanswered.find(({ question }) =>
    played.every(({ unanswered }) => unanswered.some((other) => other.question === question)),
  );
  if (ask === undefined) return undefined;
  const { method, params, question } = ask;
  const schema = isObject(params.requestedSchema) ? params.requestedSchema : {};
  const answer =
    method === 'sampling/createMessage' ? 'sample: …' : `accept: ${JSON.stringify(filledIn(schema))}`;
  return `was asked "${short(question)}" and has no answer for it; add to its answers: - ${answer}`;
}

/** An unexpected error that every revision has: the call is wrong, or the server. */
function failedIn(step: Step, played: readonly PlayedStep[]): string | undefined {
  const errors = played.flatMap(({ outcome }) => ('error' in outcome ? [outcome.error] : []));
  const [first] = errors;
  const isExpected = expectationOf(step).error !== undefined;
  if (first === undefined || errors.length < played.length || isExpected) return undefined;
  if (errors.some(({ code }) => code !== first.code)) return undefined;
  return `fails with error ${first.code} on every revision: ${short(first.message)} (if that is meant, write expect: { error: ${first.code} })`;
}
