/**
 * The spellings of each revision with Multi Round-Trip Requests: a retry, an incomplete response, and the life of a
 * task. Messages that are read are first converted to the released revision's form.
 */
import { isObject, type JsonObject, type RpcRequest } from '../message.ts';
import type { Responses } from './round.ts';

/** The contents of a retry. */
export interface Retry {
  readonly responses?: Responses | undefined;
  readonly requestState?: string | undefined;
}

interface TaskDialect {
  /** The member that says, in milliseconds, when to ask again. */
  readonly interval: 'pollInterval' | 'pollIntervalMs';
  /** Whether `tasks/get` tells the asks and the outcome; elsewhere `tasks/result` does. */
  readonly detailed: boolean;
  /** The task that a result tells of instead of an outcome. */
  created(result: JsonObject): JsonObject | undefined;
  /** The message that answers a task's asks; one without a method is answered with a status alone. */
  respond(taskId: string, responses: Responses): { readonly method?: string } & JsonObject;
}

export interface Dialect {
  readonly revision: string;
  /** The requests that may be answered with `input_required`; all, where the revision names none. */
  readonly asking: ReadonlySet<string> | undefined;
  /** Whether a status that refuses a request comes with the JSON-RPC error that says why. */
  readonly refusesInBody: boolean;
  retry(request: RpcRequest, retry: Retry): RpcRequest;
  /** A message that came in, as JSON-RPC. */
  read(value: unknown): unknown;
  readonly tasks: TaskDialect;
}

const ASKING = ['tools/call', 'prompts/get', 'resources/read'];

/** A retry of SEP-2322 and the released revision: in `params` and `result`. */
function retryInParams(request: RpcRequest, { responses, requestState }: Retry): RpcRequest {
  const params = {
    ...request.params,
    ...(responses !== undefined && { inputResponses: responses }),
    ...(requestState !== undefined && { requestState }),
  };
  return { ...request, params };
}

/** https://modelcontextprotocol.io/specification/2026-07-28, with tasks as of SEP-2663. */
export const RELEASED: Dialect = {
  revision: '2026-07-28',
  asking: new Set(ASKING),
  refusesInBody: true,
  retry: retryInParams,
  read: (value) => value,
  tasks: {
    interval: 'pollIntervalMs',
    detailed: true,
    created: (result) => (result.resultType === 'task' ? result : undefined),
    respond: (taskId, inputResponses) => ({ method: 'tasks/update', params: { taskId, inputResponses } }),
  },
};

const RELATED_TASK = 'io.modelcontextprotocol/related-task';

/** Both drafts build on the tasks of 2025-11-25: `result.task`, and `tasks/result` for the outcome. */
const draftTasks: Omit<TaskDialect, 'respond'> = {
  interval: 'pollInterval',
  detailed: false,
  created: ({ task }) => (isObject(task) ? task : undefined),
};

/** https://modelcontextprotocol.io/seps/2322 */
const SEP_2322: Dialect = {
  revision: 'DRAFT-SEP-2322',
  asking: new Set([...ASKING, 'tasks/result']),
  refusesInBody: false,
  retry: retryInParams,
  read: (value) => value,
  tasks: {
    ...draftTasks,
    respond: (taskId, inputResponses) => ({
      method: 'tasks/input_response',
      params: { inputResponses, _meta: { [RELATED_TASK]: { taskId } } },
    }),
  },
};

/** The first draft: beside `params` and instead of `result`. Any request may be incomplete. */
const FIRST_DRAFT: Dialect = {
  revision: 'DRAFT-MRTR-2026-02',
  asking: undefined,
  refusesInBody: false,
  retry: (request, { responses, requestState }) => ({
    ...request,
    ...(responses !== undefined && { input_responses: wrapped(responses) }),
    ...(requestState !== undefined && { request_state: requestState }),
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
  const result = {
    resultType: 'input_required',
    ...(inputRequests !== undefined && { inputRequests }),
    ...(requestState !== undefined && { requestState }),
    ...(_meta !== undefined && { _meta }),
  };
  return { ...head, result };
}

/** The drafts, by the names that they are negotiated under. */
export const DRAFTS: ReadonlyMap<string, Dialect> = new Map(
  [SEP_2322, FIRST_DRAFT].map((dialect) => [dialect.revision, dialect]),
);
