/** `@modelcontextprotocol/ext-tasks` as a client: a task with asks in it, on 2025-11-25 and on 2026-07-28. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { afterEach, describe, expect, it } from 'vitest';
import { buildTaskServer } from '../fixtures/task-server.ts';
import { send } from './clients.ts';
import { type Served, serveHere } from './harness.ts';

const REVISION = '2026-07-28';
const CAPABILITIES = { elicitation: { form: {} }, extensions: { 'io.modelcontextprotocol/tasks': {} } };
const INFO = { name: 'ext-tasks', version: '1.0.0' };

let served: Served | undefined;
afterEach(async () => {
  await served?.close();
  served = undefined;
});

/** Its types do not compile beside `exactOptionalPropertyTypes`, so they are left out. */
const PACKAGE = '@modelcontextprotocol/ext-tasks/client';
const { createApplicationInputHandler, createTaskSessionFromClient, resultFromTaskOutcome } = await import(
  PACKAGE
);

const asked: string[] = [];
const never = () => Promise.reject(new Error('nobody asks for that'));
const onInputRequest = createApplicationInputHandler({
  sampling: never,
  roots: never,
  elicitation: async ({ params }: { params: unknown }) => {
    const { message, requestedSchema } = params as {
      message: string;
      requestedSchema: { required: string[] };
    };
    asked.push(message);
    const [field = ''] = requestedSchema.required;
    return { action: 'accept', content: { [field]: `its ${field}` } };
  },
});

describe('@modelcontextprotocol/ext-tasks', () => {
  for (const mode of ['legacy', { pin: REVISION }] as const) {
    const name = mode === 'legacy' ? '2025-11-25' : REVISION;
    it(`completes a task that asks, on ${name}`, async () => {
      asked.length = 0;
      served = await serveHere(() => buildTaskServer(() => {}), { tasks: () => 'now' });
      const { url } = served;
      const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
      await client.connect(new StreamableHTTPClientTransport(new URL(url)));
      let id = 0;
      const rawDispatch = async (request: unknown) => {
        const { method, params } = request as { method: string; params: Record<string, unknown> };
        id += 1;
        const headers = {
          'mcp-protocol-version': REVISION,
          'mcp-method': method,
          'mcp-name': String(params.name ?? params.taskId ?? ''),
        };
        const { message } = await send(url, JSON.stringify({ jsonrpc: '2.0', id, method, params }), {
          headers,
        });
        const { result, error } = message;
        return error === undefined ? { kind: 'result', result } : { kind: 'error', error };
      };
      const raw = {
        rawDispatch,
        v2RequestFraming: { protocolVersion: REVISION, clientInfo: INFO, clientCapabilities: CAPABILITIES },
      };
      const options = { endpointId: 'here', onInputRequest };
      const session = createTaskSessionFromClient(
        client,
        mode === 'legacy' ? options : { ...options, ...raw },
      );
      const execution = await session.callTool('ship', {});
      const { outcome } = await execution.settle();
      const { content } = resultFromTaskOutcome(outcome) as { content: unknown };
      expect(content).toEqual([{ type: 'text', text: 'its name gets it at its address' }]);
      expect(asked).toEqual(['name?', 'address?']);
      await session.close();
      await client.close();
    });
  }
});
