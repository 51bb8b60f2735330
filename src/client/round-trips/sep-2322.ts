import { ASKING, type ClientDialect, draftTasks, RELATED_TASK, retryInParams } from './dialect.ts';

/** https://modelcontextprotocol.io/seps/2322 */
export const SEP_2322: ClientDialect = {
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
