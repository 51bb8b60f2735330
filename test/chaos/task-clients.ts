/** Clients of the tasks extension: each has one task, looks now and then, at whichever process, and answers. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../fixtures/random.ts';
import { stepsIn, type Tally } from './clients.ts';
import { clock } from './events.ts';
import type { Fleet } from './fleet.ts';

/** A task that has not ended after this long is lost, in milliseconds. */
const PATIENCE = 600_000;
const POLL = [500, 1_500] as const;
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'chaos', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {
    elicitation: { form: {} },
    extensions: { 'io.modelcontextprotocol/tasks': {} },
  },
};
let nextId = 1;

interface Task {
  readonly taskId: string;
  readonly status: string;
  readonly inputRequests?: object;
  readonly result?: { content?: { text: string }[] };
  readonly error?: unknown;
}

/** Undefined when no reply came, or one that says nothing of the task. */
async function post(
  url: string,
  method: string,
  params: { taskId?: string; name?: string },
): Promise<Task | undefined> {
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': method,
        'mcp-name': params.taskId ?? params.name ?? '',
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: nextId++, method, params: { ...params, _meta: META } }),
      signal: AbortSignal.timeout(12_000),
    });
    return ((await response.json()) as { result?: Task }).result;
  } catch {
    return undefined;
  }
}

export async function taskClient(fleet: Fleet, random: Random, tally: Tally): Promise<void> {
  const somewhere = (method: string, params: object): Promise<Task | undefined> =>
    post(fleet.url(random.int(fleet.size)), method, params);
  let task: Task | undefined;
  while (task?.taskId === undefined) {
    task = await somewhere('tools/call', { name: 'work', arguments: {} });
    if (task?.taskId === undefined) {
      tally.neverBegan += 1;
      await sleep(200);
    }
  }
  const { taskId } = task;
  const since = clock();
  while (clock() - since < PATIENCE) {
    await sleep(random.between(...POLL));
    const now = await somewhere('tasks/get', { taskId });
    if (now === undefined) tally.retries += 1;
    const keys = Object.keys(now?.inputRequests ?? {});
    if (keys.length > 0) {
      const answers = keys.map((key) => [key, { action: 'accept', content: { go: true } }]);
      // One that got no reply may have been taken in: the next look tells.
      await somewhere('tasks/update', { taskId, inputResponses: Object.fromEntries(answers) });
    }
    if (now === undefined || now.status === 'working' || now.status === 'input_required') continue;
    const done = stepsIn({ result: { resultType: 'complete', ...now.result } });
    if (done === undefined) tally.lost.push(JSON.stringify(now));
    else {
      tally.completed += 1;
      tally.done.push(...done);
    }
    return;
  }
  tally.lost.push(`task ${taskId} did not end in ${PATIENCE} ms`);
}
