/** A scenario as YAML, with the answers that were given, to be edited. */
import { isObject } from '../base/values.ts';
import type { Comparison } from './compare.ts';
import type { Answer, Step } from './scenario.ts';
import type { PlayedAsk } from './user.ts';

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
