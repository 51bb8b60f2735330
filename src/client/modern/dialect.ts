import { ASKING, type ClientDialect, retryInParams } from '../round-trips/dialect.ts';

/** Before the names of what a request says of its client, and a result of its server, in `_meta`. */
export const META = 'io.modelcontextprotocol';

/** https://modelcontextprotocol.io/specification/2026-07-28, with tasks as of SEP-2663. */
export const RELEASED: ClientDialect = {
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
