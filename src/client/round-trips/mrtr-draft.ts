import { defined, isObject, type JsonObject } from '../../base/values.ts';
import { type ClientDialect, draftTasks, RELATED_TASK } from './dialect.ts';
import type { Responses } from './round.ts';

/** The first draft: beside `params` and instead of `result`. Any request may be incomplete. */
export const MRTR_DRAFT: ClientDialect = {
  revision: 'DRAFT-MRTR-2026-02',
  asking: undefined,
  refusesInBody: false,
  retry: (request, { responses, requestState }) => ({
    ...request,
    ...defined({ input_responses: responses && wrapped(responses), request_state: requestState }),
  }),
  read: liftIncomplete,
  tasks: {
    ...draftTasks,
    respond: (taskId, responses) => ({
      input_responses: wrapped(responses),
      _meta: { [RELATED_TASK]: { taskId } },
    }),
  },
};

function wrapped(responses: Responses): JsonObject {
  return Object.fromEntries(Object.entries(responses).map(([key, result]) => [key, { result }]));
}

/** A response without `result` and `error` is incomplete: both of its own members are optional. */
function liftIncomplete(value: unknown): unknown {
  if (!isObject(value) || value.id === undefined) return value;
  if ('method' in value || 'result' in value || 'error' in value) return value;
  const { input_requests: inputRequests, request_state: requestState, _meta, ...head } = value;
  return { ...head, result: defined({ resultType: 'input_required', inputRequests, requestState, _meta }) };
}
