/** A server of each SDK that asks in every way that has options of its own, and tells what its tools see of it. */
import { InMemoryTaskMessageQueue, InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks';
import { McpServer as McpServerV1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { ElicitResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

const requestedSchema = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};
const FORM = { message: 'name?', requestedSchema };
const LINK = {
  mode: 'url' as const,
  message: 'open it',
  url: 'https://example.test/pay',
  elicitationId: 'pay-1',
};
const ELICIT = 'elicitation/create' as const;

/** Over with the first report. */
const IN_ALL = { onprogress: () => {}, resetTimeoutOnProgress: true, maxTotalTimeout: -1 };

const text = (value: unknown) => ({ content: [{ type: 'text' as const, text: JSON.stringify(value) }] });

interface Listening {
  readonly onprogress: (report: unknown) => void;
  readonly resetTimeoutOnProgress: boolean;
}

/** Collects the reports on an ask. */
async function listens(ask: (options: Listening) => Promise<unknown>) {
  const reports: unknown[] = [];
  const onprogress = (report: unknown): void => void reports.push(report);
  const answer = await ask({ onprogress, resetTimeoutOnProgress: true });
  return text({ reports, answer });
}

/** Waits for two reports on an ask, not for its answer. */
async function hears(ask: (options: Listening) => Promise<unknown>) {
  const reports: unknown[] = [];
  await new Promise<void>((resolve) => {
    const onprogress = (report: unknown): void => {
      if (reports.push(report) === 2) resolve();
    };
    ask({ onprogress, resetTimeoutOnProgress: true }).catch(() => {});
  });
  return text({ reports });
}

/** The error of an ask. */
async function failing(asked: Promise<unknown>) {
  const error: unknown = await asked.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  const { name, code, message } = (error ?? {}) as { name?: string; code?: unknown; message?: string };
  return text({ name, code, message });
}

/** Which streams a tool may close; it closes the standing one. */
function closes(own: unknown, standing: (() => void) | undefined) {
  standing?.();
  return text({ own: typeof own, standing: typeof standing });
}

export function askerV1(): McpServerV1 {
  const taskStore = new InMemoryTaskStore();
  const server = new McpServerV1(
    { name: 'asker', version: '1.0.0' },
    {
      capabilities: { tasks: { requests: { tools: { call: {} } } } },
      taskStore,
      taskMessageQueue: new InMemoryTaskMessageQueue(),
    },
  );
  const errors: string[] = [];
  server.server.onerror = ({ message }) => void errors.push(message);
  server.registerTool('listens', {}, ({ sendRequest }) =>
    listens((options) => sendRequest({ method: ELICIT, params: FORM }, ElicitResultSchema, options)),
  );
  server.registerTool('listens-by-method', {}, ({ requestId: relatedRequestId }) =>
    listens((options) => server.server.elicitInput(FORM, { ...options, relatedRequestId })),
  );
  server.registerTool('hears', {}, ({ sendRequest }) =>
    hears((options) => sendRequest({ method: ELICIT, params: FORM }, ElicitResultSchema, options)),
  );
  server.registerTool('gives-up', {}, ({ sendRequest }) =>
    failing(sendRequest({ method: ELICIT, params: FORM }, ElicitResultSchema, { timeout: 1 })),
  );
  server.registerTool('gives-up-in-all', {}, ({ sendRequest }) =>
    failing(sendRequest({ method: ELICIT, params: FORM }, ElicitResultSchema, IN_ALL)),
  );
  server.registerTool('opens', {}, ({ sendRequest }) =>
    failing(sendRequest({ method: ELICIT, params: LINK }, ElicitResultSchema)),
  );
  server.registerTool('fills-in', {}, ({ sendRequest }) =>
    failing(sendRequest({ method: ELICIT, params: FORM }, ElicitResultSchema)),
  );
  server.registerTool('errors', {}, () => text(errors));
  server.registerTool('closes', {}, ({ closeSSEStream, closeStandaloneSSEStream }) =>
    closes(closeSSEStream, closeStandaloneSSEStream),
  );
  const answers: unknown[] = [];
  server.registerTool('answers', {}, () => text(answers));
  server.experimental.tasks.registerToolTask(
    'asks-and-ends',
    { execution: { taskSupport: 'required' } },
    {
      createTask: async ({ taskStore: store }) => {
        const task = await store.createTask({ ttl: 60_000 });
        const relatedTask = { taskId: task.taskId };
        void server.server.elicitInput(FORM, { relatedTask }).then((answer) => answers.push(answer));
        await store.storeTaskResult(task.taskId, 'completed', text('ended'));
        return { task };
      },
      getTask: ({ taskStore: store, taskId }) => store.getTask(taskId),
      getTaskResult: async ({ taskStore: store, taskId }) =>
        (await store.getTaskResult(taskId)) as ReturnType<typeof text>,
    },
  );
  return server;
}

export function askerV2(): McpServer {
  const server = new McpServer({ name: 'asker', version: '2.0.0' });
  const errors: string[] = [];
  server.server.onerror = ({ message }) => void errors.push(message);
  const none = { inputSchema: z.object({}) };
  server.registerTool('listens', none, (_args, { mcpReq }) =>
    listens((options) => mcpReq.send({ method: ELICIT, params: FORM }, options)),
  );
  server.registerTool('listens-by-method', none, (_args, { mcpReq }) =>
    listens((options) => server.server.elicitInput(FORM, { ...options, relatedRequestId: mcpReq.id })),
  );
  server.registerTool('gives-up', none, (_args, { mcpReq }) =>
    failing(mcpReq.send({ method: ELICIT, params: FORM }, { timeout: 1 })),
  );
  server.registerTool('gives-up-in-all', none, (_args, { mcpReq }) =>
    failing(mcpReq.send({ method: ELICIT, params: FORM }, IN_ALL)),
  );
  server.registerTool('opens', none, (_args, { mcpReq }) =>
    failing(mcpReq.send({ method: ELICIT, params: LINK })),
  );
  server.registerTool('fills-in', none, (_args, { mcpReq }) =>
    failing(mcpReq.send({ method: ELICIT, params: FORM })),
  );
  server.registerTool('errors', none, () => text(errors));
  server.registerTool('closes', none, (_args, { http }) => closes(http?.closeSSE, http?.closeStandaloneSSE));
  return server;
}
