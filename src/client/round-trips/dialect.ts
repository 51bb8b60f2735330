/**
 * The spelling of a revision with Multi Round-Trip Requests: a retry, an incomplete response, and the life of a
 * task. Messages that are read are first converted to the released revision's form.
 */
import { defined, isObject, type JsonObject } from '../../base/values.ts';
import type { ClientRequest } from '../message.ts';
import type { Responses } from './round.ts';

/** The contents of a retry. */
export interface RetryContent {
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

export interface ClientDialect {
  readonly revision: string;
  /** The requests that may be answered with `input_required`; all, where the revision names none. */
  readonly asking: ReadonlySet<string> | undefined;
  /** Whether a status that refuses a request comes with the JSON-RPC error that says why. */
  readonly refusesInBody: boolean;
  retry(request: ClientRequest, retry: RetryContent): ClientRequest;
  /** A message that came in, as JSON-RPC. */
  read(value: unknown): unknown;
  readonly tasks: TaskDialect;
}

export const ASKING = ['tools/call', 'prompts/get', 'resources/read'];

/** A retry of SEP-2322 and the released revision: in `params` and `result`. */
export function retryInParams(
  request: ClientRequest,
  { responses, requestState }: RetryContent,
): ClientRequest {
  return {
    ...request,
    params: { ...request.params, ...defined({ inputResponses: responses, requestState }) },
  };
}

export const RELATED_TASK = 'io.modelcontextprotocol/related-task';

/** Both drafts build on the tasks of 2025-11-25: `result.task`, and `tasks/result` for the outcome. */
export const draftTasks: Omit<TaskDialect, 'respond'> = {
  interval: 'pollInterval',
  detailed: false,
  created: ({ task }) => (isObject(task) ? task : undefined),
};
