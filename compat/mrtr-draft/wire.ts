/**
 * Multi round-trip requests as they were first drafted: a response without `result` has the asks and the state
 * beside its `id`, and a retry has the answers and the state beside its `method`. An answer is wrapped as a
 * response is, so it may be an error.
 */

import { AwaitError, defined, isObject, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { ErrorAnswers } from '../../src/call/ask/answer.ts';
import { isRpcError } from '../../src/call/ask/meta.ts';
import type { TaskStatus } from '../../src/call/task/tasks.ts';
import { type Dialect, type GivenAnswers, inputRequests } from '../mrtr/dialect.ts';
import { legacyTask, relatedTask, relatedTo } from '../tasks/legacy-wire.ts';

const REVISION = 'DRAFT-MRTR-2026-02';

/** As the draft spells them; it does not define the last two. */
const STATUSES: Readonly<Record<TaskStatus, string>> = {
  working: 'Working',
  input_required: 'input_required',
  completed: 'Completed',
  failed: 'Failed',
  cancelled: 'Cancelled',
};

export const MRTR_DRAFT: Dialect = {
  revision: REVISION,
  notifications: 'hold',
  newIds: false,
  // It limits no request to be answered at once.
  mayAsk: () => true,
  read({ params, input_responses: responses, request_state: state }) {
    return {
      params,
      ...(responses !== undefined && { answers: unwrapped(responses) }),
      ...defined({ state }),
    };
  },
  complete: (result) => ({ result }),
  incomplete: (asks, state) => ({
    ...(asks.length > 0 && { input_requests: inputRequests(asks) }),
    request_state: state,
  }),
  taskAsks: (asks, taskId) => relatedTo(taskId, { input_requests: inputRequests(asks) }),
  task(view, pollInterval) {
    const { lastUpdatedAt: _later, status, ...task } = legacyTask(view, pollInterval);
    return { ...task, status: STATUSES[status] };
  },
  taskAnswers(message) {
    const { method, id, input_responses: responses } = message;
    if (method !== undefined || id === undefined || responses === undefined) return undefined;
    return { taskId: relatedTask(message), answers: unwrapped(responses) };
  },
  acknowledges: false,
};

/** @throws AwaitError `bad-answer` when it is not an object, or one of its values is neither a result nor an error */
function unwrapped(responses: unknown): GivenAnswers {
  if (!isObject(responses)) {
    throw new AwaitError('bad-answer', 'input_responses must be an object of responses by key');
  }
  const results: JsonObject = {};
  const errors: Record<string, ErrorAnswers[string]> = {};
  for (const [key, value] of Object.entries(responses)) {
    const { result, error } = objectOf(value);
    if (isObject(result)) set(results, key, result);
    else if (isRpcError(error)) set(errors, key, error);
    else throw new AwaitError('bad-answer', `input_responses['${key}'] must be { result } or { error }`);
  }
  return { results, ...(Object.keys(errors).length > 0 && { errors }) };
}

/** A key may be `__proto__`. */
function set(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
}
