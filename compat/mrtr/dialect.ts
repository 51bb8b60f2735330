/**
 * The differences between the two drafts of multi round-trip requests: the places and spellings of members. The rest of
 * both is in this folder.
 */

import type { JsonObject } from '../../src/base/values.ts';
import type { ErrorAnswers } from '../../src/call/ask/answer.ts';
import type { OpenAsk } from '../../src/call/journal/entries.ts';
import type { TaskView } from '../../src/call/task/tasks.ts';
import type { RpcRequest } from '../session/start.ts';

/** A client's answers, by the keys of asks. */
export interface GivenAnswers {
  /** As they came: the engine looks at those that were asked for. */
  readonly results: unknown;
  readonly errors?: ErrorAnswers;
}

/** A request, taken apart. */
export interface Incoming {
  /** As the server gets them: without answers and state. */
  readonly params: JsonObject;
  readonly answers?: GivenAnswers;
  readonly state?: unknown;
}

export interface Dialect {
  readonly revision: string;
  /**
   * `stream`: a call's notifications go out at once. `hold`: with its outcome, since an incomplete result cannot be a
   * stream.
   */
  readonly notifications: 'stream' | 'hold';
  /** Whether a retry must have another id than the request that it retries. */
  readonly newIds: boolean;
  /** Whether a request of this method may be answered with asks. */
  mayAsk(method: string): boolean;
  /** @throws AwaitError `bad-answer` for invalid answers */
  read(message: JsonObject & RpcRequest): Incoming;
  /** The members beside `jsonrpc` and `id`, here and below: a result. */
  complete(result: JsonObject): JsonObject;
  /** @param asks none for a call that was given up: its client comes back at once */
  incomplete(asks: readonly OpenAsk[], state: string): JsonObject;
  /** `tasks/result` of a task that waits for answers. */
  taskAsks(asks: readonly OpenAsk[], taskId: string): JsonObject;
  task(view: TaskView, pollInterval: number): JsonObject;
  /** Reads the answers to a task; undefined for all other messages. @throws AwaitError `bad-answer` */
  taskAnswers(
    message: JsonObject,
  ): { readonly taskId: string | undefined; readonly answers: GivenAnswers } | undefined;
  /** The acknowledgement; undefined if a 202 is all. */
  readonly acknowledges: boolean;
}

/** Asks as both drafts have them: requests without ids, by their keys. */
export function inputRequests(asks: readonly OpenAsk[]): JsonObject {
  return Object.fromEntries(
    asks.map(({ key, name = key, method, params }) => [
      name,
      Object.keys(params).length > 0 ? { method, params } : { method },
    ]),
  );
}
