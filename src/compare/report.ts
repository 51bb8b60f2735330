/** A comparison for machines: JSON, JUnit's XML, and its scenario as YAML. */
import { escapeMarkup } from '../base/markup.ts';
import { isObject } from '../base/values.ts';
import type { Comparison } from './compare.ts';
import type { Difference } from './differences.ts';
import { UNSEEN } from './notes.ts';
import type { Answer, Step } from './scenario.ts';
import type { PlayedAsk } from './user.ts';

/** 0 where all agree, 1 where outcomes differ, 2 where the scenario or the server is wrong. */
export function exitCodeOf({ differences, problems }: Comparison): 0 | 1 | 2 {
  if (problems.length > 0) return 2;
  return differences.length > 0 ? 1 : 0;
}

export function jsonReport(comparison: Comparison): string {
  const { same: _same, columns, ...rest } = comparison;
  const report = {
    exitCode: exitCodeOf(comparison),
    ...rest,
    unseen: UNSEEN,
    columns: columns.map(({ messages: _messages, ...column }) => column),
  };
  return `${JSON.stringify(report, null, 2)}\n`;
}

/** A suite for each column, a case for each step; and one suite for findings outside of columns, such as a leak. */
export function junitReport({ columns, differences, problems }: Comparison): string {
  const names = new Set(columns.map(({ name }) => name));
  const suites = columns.map(({ name, steps }) => {
    const cases = steps.map(({ title, time }, index) => {
      const failures = differences
        .filter((one) => one.step === index && one.columns.includes(name))
        .map(failure);
      const errors = problems
        .filter(({ step }) => step === index)
        .map(({ text }) => `<error message="${escapeMarkup(text)}"/>`);
      return `    <testcase classname="${escapeMarkup(name)}" name="${escapeMarkup(`${index + 1}. ${title}`)}" time="${time / 1_000}">${[...failures, ...errors].join('')}</testcase>`;
    });
    return suite(name, cases);
  });
  const elsewhere = differences.filter((one) => one.columns.some((column) => !names.has(column)));
  const others = elsewhere.map(
    (one) =>
      `    <testcase classname="between" name="${escapeMarkup(`${one.step + 1}. ${one.columns.join(', ')}`)}">${failure(one)}</testcase>`,
  );
  const all = [...suites, ...(others.length === 0 ? [] : [suite('between', others)])];
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="mcp-await compare">\n${all.join('\n')}\n</testsuites>\n`;
}

function suite(name: string, cases: readonly string[]): string {
  const count = (tag: string): number => cases.filter((one) => one.includes(tag)).length;
  return `  <testsuite name="${escapeMarkup(name)}" tests="${cases.length}" failures="${count('<failure')}" errors="${count('<error')}">\n${cases.join('\n')}\n  </testsuite>`;
}

function failure({ kind, text }: Difference): string {
  return `<failure type="${kind}" message="${escapeMarkup(text)}"/>`;
}

// --- a scenario with its answers ---

/** A scenario as YAML, with the answers that were given, to be edited. */

const HEAD = '# yaml-language-server: $schema=./node_modules/mcp-await/dist/scenario.schema.json\n';

export async function writtenScenario({ scenario, columns }: Comparison): Promise<string> {
  const { stringify } = await import('yaml');
  const steps = scenario.steps.map((step, index): Step => {
    const asked = columns.map((column) => column.steps[index]?.asks ?? []);
    const most = asked.reduce((longest, asks) => (asks.length > longest.length ? asks : longest), []);
    const answers = most.flatMap(answerOf);
    return 'list' in step || answers.length === 0 ? step : { ...step, answers };
  });
  return `${HEAD}${stringify({ ...scenario, steps })}`;
}

/** Roots are the client's, not an answer. */
function answerOf({ method, question, params, answer }: PlayedAsk): Answer[] {
  if (method === 'roots/list') return [];
  const to = question.split('\n')[0] ?? '';
  if (isObject(answer.content) && method === 'sampling/createMessage') {
    return [{ sample: String(answer.content.text) }];
  }
  if (answer.action === 'decline') return [{ to, decline: true }];
  if (answer.action === 'cancel') return [{ to, cancel: true }];
  return [{ to, accept: params.mode === 'url' || !isObject(answer.content) ? true : answer.content }];
}
