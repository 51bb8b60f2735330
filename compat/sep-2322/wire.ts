/**
 * SEP-2322 as approved: every result has a type, asks are in a result, answers in the params of the retry.
 * https://github.com/modelcontextprotocol/modelcontextprotocol/pull/2322
 */

import { isObject, type JsonObject } from '../../src/base/values.ts';
import { checkResponses } from '../../src/call/ask/answer.ts';
import { type Dialect, inputRequests } from '../mrtr/dialect.ts';
import { legacyTask, relatedTask, relatedTo } from '../tasks/legacy-wire.ts';

const REVISION = 'DRAFT-SEP-2322';

/** With `tasks/result`, all requests that its table has a yes for. */
const ASKING: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read']);

export const SEP_2322: Dialect = {
  revision: REVISION,
  notifications: 'stream',
  newIds: true,
  mayAsk: (method) => ASKING.has(method),
  read({ params }) {
    const { inputResponses, requestState, ...rest } = params;
    return {
      params: rest,
      ...(inputResponses !== undefined && { answers: { results: inputResponses } }),
      ...(requestState !== undefined && { state: requestState }),
    };
  },
  complete: (result) => ({ result: { ...result, resultType: 'complete' } }),
  incomplete: (asks, requestState) => ({
    result: {
      resultType: 'input_required',
      ...(asks.length > 0 && { inputRequests: inputRequests(asks) }),
      requestState,
    },
  }),
  taskAsks: (asks, taskId) => ({
    result: relatedTo(taskId, { resultType: 'input_required', inputRequests: inputRequests(asks) }),
  }),
  task: (view, pollInterval) => legacyTask(view, pollInterval),
  taskAnswers({ method, params }: JsonObject) {
    if (method !== 'tasks/input_response' || !isObject(params)) return undefined;
    const { inputResponses } = params;
    checkResponses(inputResponses);
    return { taskId: relatedTask(params), answers: { results: inputResponses } };
  },
  acknowledges: true,
};
