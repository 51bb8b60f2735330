/** Mistakes in a scenario or its server that show on every revision, and expectations that only some revisions meet. */
import { objectOf } from '../base/values.ts';
import { type Difference, quoted, short } from './differences.ts';
import { type Column, isFailed, PATIENCE, type PlayedStep, TOO_LONG, textOf } from './play.ts';
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
    const failed = failedIn(
      step,
      played,
      columns.find((column) => column.tools !== undefined)?.tools,
      scenario.timeout ?? PATIENCE,
    );
    const [first = [], ...others] = played.map((one) => unmet(expectationOf(step), one));
    const inAll = first.filter((text) => others.every((texts) => texts.includes(text)));
    const found = [failed, unansweredIn(played), failed ?? unusedIn(step, played), ...inAll];
    return [...new Set(found)].flatMap((text) => (text === undefined ? [] : [{ step: index, text }]));
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

export function expectationOf(step: Step): Expectation {
  return 'expect' in step ? (step.expect ?? {}) : {};
}

function unmet({ text, error, asks, isError }: Expectation, step: PlayedStep): string[] {
  const found: string[] = [];
  if (text !== undefined && !textOf(step).includes(text)) {
    found.push(`expected a result with "${text}" in it, and got "${short(textOf(step))}"`);
  }
  const code = 'error' in step.outcome ? step.outcome.error.code : undefined;
  if (error !== undefined && code !== error) {
    found.push(`expected error ${error}, and got ${code === undefined ? 'a result' : `error ${code}`}`);
  }
  if (isError === true && !isFailed(step)) {
    found.push(`expected a result with isError, and got "${short(textOf(step))}"`);
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
  const schema = objectOf(params.requestedSchema);
  const answer =
    method === 'sampling/createMessage' ? 'sample: …' : `accept: ${JSON.stringify(filledIn(schema))}`;
  return `was asked "${short(question)}" and has no answer for it; add to its answers: - ${answer}`;
}

/** An answer that no revision's question took is for a question that is not asked, or says it in other words. */
function unusedIn(step: Step, played: readonly PlayedStep[]): string | undefined {
  const nth = played[0]?.unused.find((place) => played.every(({ unused }) => unused.includes(place)));
  if (nth === undefined || !('answers' in step) || !Array.isArray(step.answers)) return undefined;
  const asked = quoted((played[0]?.asks ?? []).map(({ question }) => question));
  return `nobody asks for answer ${nth}, ${JSON.stringify(step.answers[nth - 1])}: it was asked ${asked}`;
}

/** An unexpected error that every revision has: the call is wrong, or the server. */
function failedIn(
  step: Step,
  played: readonly PlayedStep[],
  tools: readonly string[] | undefined,
  patience: number,
): string | undefined {
  const [first] = played;
  if (first === undefined || !played.every(isFailed)) return undefined;
  if ('call' in step && tools !== undefined && !tools.includes(step.call)) {
    return `there is no tool ${step.call}; the server has ${tools.join(', ') || 'none'}`;
  }
  const { error, isError } = expectationOf(step);
  const codes = new Set(played.map(({ outcome }) => ('error' in outcome ? outcome.error.code : 'isError')));
  const [code] = codes;
  if (codes.size > 1 || code === (isError === true ? 'isError' : error)) return undefined;
  if (code === TOO_LONG) {
    return `has no outcome after ${patience} ms on every revision; give it longer`;
  }
  const why = 'error' in first.outcome ? first.outcome.error.message : textOf(first).replace(/^error: /, '');
  const meant = code === 'isError' ? 'isError: true' : `error: ${code}`;
  const how = code === 'isError' ? 'with isError' : `with error ${code}`;
  return `fails ${how} on every revision: ${short(why, 300)} (if that is meant, write expect: { ${meant} })`;
}
