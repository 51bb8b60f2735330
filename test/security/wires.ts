/**
 * One call that waits for its caller's answer, on every wire, and all that somebody else may try with what they
 * got hold of: the ids and tokens that its caller was given.
 */
import { expect } from 'vitest';
import { messagesIn, type Rpc } from '../e2e/clients.ts';
import { APPROVED, FIRST, type Words } from '../e2e/rounds.ts';
import { QUESTION, WORD } from './service.ts';

type Json = Readonly<Record<string, unknown>>;

/** A caller of a service: the service's root, and the caller's bearer token, if any. */
export interface As {
  readonly root: string;
  readonly token?: string;
}

/** A call that waits. */
export interface Held {
  /** The ids and tokens that its caller was given. */
  readonly names: readonly string[];
  /** What may be tried with them; each resolves with all that came back. */
  readonly attempts: Readonly<Record<string, (as: As) => Promise<string>>>;
  /** Its caller answers; resolves with all that came back. */
  finish(): Promise<string>;
  close(): void;
}

export interface Wire {
  readonly name: string;
  begin(as: As): Promise<Held>;
}

const ACCEPTS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
/** How long a stream may bring something that it should not, in milliseconds. */
const LISTENED = 250;
const CAPABILITIES = { elicitation: {} };
const INFO = { name: 'by hand', version: '1' };
const ARGUMENTS = { word: WORD };
/** The id of the request that is held. */
const CALL = 'the-call';
const ANSWER = { action: 'accept', content: { name: 'answered' } };
/** What an intruder answers. */
const FORGED = { action: 'accept', content: { name: 'forged' } };

let ids = 0;
const nextId = (): string => {
  ids += 1;
  return `id-${ids}`;
};

function headersOf({ token }: As, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  return { ...ACCEPTS, ...(token !== undefined && { authorization: `Bearer ${token}` }), ...more };
}

/** A response whose body is read for as long as it comes, and while somebody wants it. */
class Open {
  readonly status: number;
  readonly headers: Headers;
  text = '';
  isOver = false;
  readonly #gone: AbortController;

  constructor(response: Response, gone: AbortController) {
    this.status = response.status;
    this.headers = response.headers;
    this.#gone = gone;
    void this.#read(response);
  }

  async until(pattern: RegExp): Promise<string> {
    await expect
      .poll(() => pattern.exec(this.text)?.[1] ?? '', { timeout: 60_000, interval: 15 })
      .not.toBe('');
    return pattern.exec(this.text)?.[1] ?? '';
  }

  async message(wanted: (message: Rpc) => boolean): Promise<Rpc> {
    const found = (): Rpc | undefined => messagesIn(this.text.trimStart()).find(wanted);
    await expect
      .poll(() => (this.isOver || this.text.endsWith('\n\n') ? found() !== undefined : false), {
        timeout: 60_000,
        interval: 15,
      })
      .toBe(true);
    return found() as Rpc;
  }

  async end(within = 15_000): Promise<string> {
    const until = Date.now() + within;
    while (!this.isOver && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 10));
    this.close();
    return `${this.status} ${this.text}`;
  }

  close(): void {
    this.#gone.abort();
  }

  async #read(response: Response): Promise<void> {
    try {
      for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) this.text += chunk;
    } catch {
      // The client has left.
    }
    this.isOver = true;
  }
}

async function open(
  as: As,
  path: string,
  method: string,
  headers: Record<string, string>,
  body?: unknown,
): Promise<Open> {
  const gone = new AbortController();
  const response = await fetch(`${as.root}${path}`, {
    method,
    headers: headersOf(as, headers),
    signal: gone.signal,
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return new Open(response, gone);
}

/** All that comes back within a moment. */
async function tried(
  as: As,
  path: string,
  method: string,
  headers: Record<string, string>,
  body?: unknown,
): Promise<string> {
  return (await open(as, path, method, headers, body)).end(LISTENED);
}

const request = (method: string, params: Json, id: string = nextId()): Json => ({
  jsonrpc: '2.0',
  id,
  method,
  params,
});
const cancelled = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: CALL } };
const called = (name: string, more: Json = {}): Json =>
  request('tools/call', { name, arguments: ARGUMENTS, ...more }, CALL);
const isAsk = ({ method }: Rpc): boolean => method === 'elicitation/create';
const responded = (id: unknown, result: object): Json => ({ jsonrpc: '2.0', id, result });
const streamOf = (eventId: string): string => eventId.slice(0, eventId.lastIndexOf('_'));
const secretOf = (id: string): string => id.slice(id.indexOf('.') + 1);

// --- 2026-07-28 ------------------------------------------------------------------------------------------

function modern(as: As, method: string, params: Json, capabilities: Json = CAPABILITIES): Promise<Open> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': INFO,
    'io.modelcontextprotocol/clientCapabilities': capabilities,
  };
  const name = String(params.name ?? params.taskId ?? '');
  const headers = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    ...(name !== '' && { 'mcp-name': name }),
  };
  return open(as, '/mcp', 'POST', headers, request(method, { ...params, _meta }));
}

const rounds: Wire = {
  name: '2026-07-28, round trips',
  async begin(as) {
    const params = { name: 'hold', arguments: ARGUMENTS };
    const { result } = JSON.parse((await (await modern(as, 'tools/call', params)).end()).slice(4)) as Rpc;
    const [key = ''] = Object.keys(result?.inputRequests ?? {});
    const requestState = result?.requestState ?? '';
    const retry = async (who: As, answer: object): Promise<string> =>
      (await modern(who, 'tools/call', { ...params, requestState, inputResponses: { [key]: answer } })).end(
        2_000,
      );
    return {
      names: [requestState],
      attempts: {
        'answers with its state': (who) => retry(who, FORGED),
        'resumes its state without answers': async (who) =>
          (await modern(who, 'tools/call', { ...params, requestState })).end(2_000),
      },
      finish: () => retry(as, ANSWER),
      close: () => {},
    };
  },
};

const EXTENSION = { ...CAPABILITIES, extensions: { 'io.modelcontextprotocol/tasks': {} } };

const tasks: Wire = {
  name: '2026-07-28, tasks',
  async begin(as) {
    const ask = async (who: As, method: string, params: Json): Promise<string> =>
      (await modern(who, method, params, EXTENSION)).end(LISTENED);
    const made = await ask(as, 'tools/call', { name: 'job', arguments: ARGUMENTS });
    const taskId = /"taskId":"([^"]+)"/.exec(made)?.[1] ?? '';
    let key = '';
    const findKey = async (): Promise<string> => {
      key = /"inputRequests":\{"([^"]+)"/.exec(await ask(as, 'tasks/get', { taskId }))?.[1] ?? '';
      return key;
    };
    await expect.poll(findKey).not.toBe('');
    return {
      names: [secretOf(taskId)],
      attempts: {
        'reads it': (who) => ask(who, 'tasks/get', { taskId }),
        'answers it': (who) => ask(who, 'tasks/update', { taskId, inputResponses: { [key]: FORGED } }),
        'cancels it': (who) => ask(who, 'tasks/cancel', { taskId }),
        'subscribes to it': (who) =>
          ask(who, 'subscriptions/listen', { notifications: { taskIds: [taskId] } }).then((text) =>
            // Its id is returned to its caller alone.
            text.replaceAll('"taskIds":[]', ''),
          ),
      },
      finish: async () => {
        await ask(as, 'tasks/update', { taskId, inputResponses: { [key]: ANSWER } });
        await expect.poll(() => ask(as, 'tasks/get', { taskId })).toContain('answered');
        return ask(as, 'tasks/get', { taskId });
      },
      close: () => {},
    };
  },
};

// --- revisions with sessions ------------------------------------------------------------------------------

interface Session {
  readonly id: string;
  readonly headers: Record<string, string>;
}

async function session(as: As, revision: string, capabilities: Json = CAPABILITIES): Promise<Session> {
  const params = { protocolVersion: revision, capabilities, clientInfo: INFO };
  const begun = await open(as, '/mcp', 'POST', {}, request('initialize', params));
  await begun.end();
  const id = begun.headers.get('mcp-session-id') ?? '';
  const headers = { 'mcp-session-id': id, 'mcp-protocol-version': revision };
  await tried(as, '/mcp', 'POST', headers, { jsonrpc: '2.0', method: 'notifications/initialized' });
  return { id, headers };
}

/** The same with the session that was got hold of, and with one of the intruder's own. */
function withBoth(
  theirs: Session,
  revision: string,
  attempts: Readonly<Record<string, (as: As, session: Session) => Promise<string>>>,
): Held['attempts'] {
  const both = Object.entries(attempts).flatMap(([name, attempt]) => [
    [`${name}, in its session`, (who: As) => attempt(who, theirs)] as const,
    [`${name}, in another session`, async (who: As) => attempt(who, await session(who, revision))] as const,
  ]);
  return Object.fromEntries(both);
}

function live(revision: string): Wire {
  return {
    name: revision,
    async begin(as) {
      const own = await session(as, revision);
      const stream = await open(as, '/mcp', 'POST', own.headers, called('hold'));
      const { id: ask } = await stream.message(isAsk);
      const event = /^id: (.+)$/m.exec(stream.text)?.[1] ?? '';
      return {
        names: [own.id, secretOf(String(ask)).split('/')[0] ?? '', secretOf(streamOf(event))],
        attempts: {
          ...withBoth(own, revision, {
            answers: (who, { headers }) => tried(who, '/mcp', 'POST', headers, responded(ask, FORGED)),
            'follows its stream': (who, { headers }) =>
              tried(who, '/mcp', 'GET', { ...headers, 'last-event-id': `${streamOf(event)}_1` }),
            'cancels it': (who, { headers }) => tried(who, '/mcp', 'POST', headers, cancelled),
          }),
          'listens in its session': (who) => tried(who, '/mcp', 'GET', own.headers),
          'calls a tool in its session': (who) =>
            tried(
              who,
              '/mcp',
              'POST',
              own.headers,
              request('tools/call', { name: 'hold', arguments: { word: 'x' } }),
            ),
          'ends its session': (who) => tried(who, '/mcp', 'DELETE', own.headers),
        },
        async finish() {
          await tried(as, '/mcp', 'POST', own.headers, responded(ask, ANSWER));
          await stream.message(({ id }) => id === CALL);
          return stream.text;
        },
        close: () => stream.close(),
      };
    },
  };
}

const sessionTasks: Wire = {
  name: '2025-11-25, tasks',
  async begin(as) {
    const revision = '2025-11-25';
    const own = await session(as, revision, {
      ...CAPABILITIES,
      tasks: { requests: { elicitation: { create: {} } } },
    });
    const made = await tried(as, '/mcp', 'POST', own.headers, called('job', { task: { ttl: 600_000 } }));
    const taskId = /"taskId":"([^"]+)"/.exec(made)?.[1] ?? '';
    const waiting = await open(
      as,
      '/mcp',
      'POST',
      own.headers,
      request('tasks/result', { taskId }, 'the-result'),
    );
    const { id: ask } = await waiting.message(isAsk);
    return {
      names: [own.id, secretOf(taskId)],
      attempts: withBoth(own, revision, {
        'reads it': (who, { headers }) =>
          tried(who, '/mcp', 'POST', headers, request('tasks/get', { taskId })),
        'waits for it': (who, { headers }) =>
          tried(who, '/mcp', 'POST', headers, request('tasks/result', { taskId })),
        'lists it': async (who, { headers }) =>
          (await tried(who, '/mcp', 'POST', headers, request('tasks/list', {}))).includes(taskId) ? WORD : '',
        'cancels it': (who, { headers }) =>
          tried(who, '/mcp', 'POST', headers, request('tasks/cancel', { taskId })),
        answers: (who, { headers }) => tried(who, '/mcp', 'POST', headers, responded(ask, FORGED)),
      }),
      async finish() {
        await tried(as, '/mcp', 'POST', own.headers, responded(ask, ANSWER));
        await waiting.message(({ id }) => id === 'the-result');
        return waiting.text;
      },
      close: () => waiting.close(),
    };
  },
};

function draft(words: Words): Wire {
  const { revision } = words;
  return {
    name: revision,
    async begin(as) {
      const own = await session(as, revision);
      const first = called('hold');
      const asked = messagesIn((await tried(as, '/mcp', 'POST', own.headers, first)).slice(4)).at(
        -1,
      ) as unknown as Json;
      const [key = ''] = Object.keys(words.asked(asked));
      const state = words.state(asked);
      const retry = (who: As, { headers }: Session, answer: object): Promise<string> =>
        tried(
          who,
          '/mcp',
          'POST',
          headers,
          words.retry({ ...first, id: nextId() }, state, words.answers({ [key]: answer as Json })),
        );
      return {
        names: [own.id, String(state)],
        attempts: withBoth(own, revision, {
          'answers with its state': (who, mine) => retry(who, mine, FORGED),
        }),
        finish: () => retry(as, own, ANSWER),
        close: () => {},
      };
    },
  };
}

const buffered: Wire = {
  name: 'DRAFT-SEP-1858',
  async begin(as) {
    const revision = 'DRAFT-SEP-1858';
    const own = await session(as, revision);
    const turn = await open(as, '/mcp', 'POST', own.headers, called('hold'));
    const last = await turn.until(/event: input_required\nid: (\S+)/);
    const ask = messagesIn(turn.text).find(isAsk)?.id;
    const answers = (who: As, { headers }: Session, answer: object): Promise<string> =>
      tried(who, '/mcp', 'POST', { ...headers, 'last-event-id': last }, [responded(ask, answer)]);
    return {
      names: [own.id, secretOf(streamOf(last))],
      attempts: withBoth(own, revision, {
        answers: (who, mine) => answers(who, mine, FORGED),
        'follows its stream': (who, { headers }) =>
          tried(who, '/mcp', 'GET', { ...headers, 'last-event-id': `${streamOf(last)}_1` }),
      }),
      finish: () => answers(as, own, ANSWER),
      close: () => turn.close(),
    };
  },
};

const oldest: Wire = {
  name: '2024-11-05',
  async begin(as) {
    const stream = await open(as, '/sse', 'GET', { accept: 'text/event-stream' });
    const endpoint = await stream.until(/^data: (\/\S+)$/m);
    const id = new URLSearchParams(endpoint.split('?')[1]).get('sessionId') ?? '';
    const post = (who: As, message: unknown): Promise<string> => tried(who, endpoint, 'POST', {}, message);
    const params = { protocolVersion: '2024-11-05', capabilities: CAPABILITIES, clientInfo: INFO };
    await post(as, request('initialize', params, 'begin'));
    await stream.message((message) => message.id === 'begin');
    await post(as, called('hold'));
    const { id: ask } = await stream.message(isAsk);
    return {
      names: [secretOf(id), secretOf(String(ask)).split('/')[0] ?? ''],
      attempts: {
        'answers in its session': (who) => post(who, responded(ask, FORGED)),
        'cancels it': (who) => post(who, cancelled),
        'calls a tool in its session': (who) =>
          post(who, request('tools/call', { name: 'hold', arguments: { word: 'x' } })),
        'follows its stream': (who) =>
          tried(who, '/sse', 'GET', { accept: 'text/event-stream', 'last-event-id': `${id}_1` }),
        'follows its stream from the start': (who) =>
          tried(who, '/sse', 'GET', { accept: 'text/event-stream', 'last-event-id': `${id}_0` }),
        'answers in another session': async (who) => {
          const mine = await open(who, '/sse', 'GET', { accept: 'text/event-stream' });
          const path = await mine.until(/^data: (\/\S+)$/m);
          await tried(who, path, 'POST', {}, request('initialize', params, 'begin'));
          await tried(who, path, 'POST', {}, responded(ask, FORGED));
          return mine.end(LISTENED);
        },
      },
      async finish() {
        await post(as, responded(ask, ANSWER));
        await stream.message((message) => message.id === CALL);
        return stream.text;
      },
      close: () => stream.close(),
    };
  },
};

const workspace: Wire = {
  name: 'workspace-sse',
  async begin(as) {
    const path = '/mcp/room';
    const stream = await open(as, path, 'GET', { accept: 'text/event-stream' });
    await stream.until(/(streamOpened)/);
    const id = stream.headers.get('mcp-stream-id') ?? '';
    await tried(as, path, 'POST', { 'mcp-stream-id': id }, called('hold'));
    const { id: ask } = await stream.message(
      ({ method, params }) => method !== undefined && params?.message === QUESTION,
    );
    return {
      names: [secretOf(id), secretOf(String(ask)).split('/')[0] ?? ''],
      attempts: {
        answers: (who) => tried(who, path, 'POST', {}, responded(ask, FORGED)),
        'answers on its stream': (who) =>
          tried(who, path, 'POST', { 'mcp-stream-id': id }, responded(ask, FORGED)),
        'cancels it on its stream': (who) => tried(who, path, 'POST', { 'mcp-stream-id': id }, cancelled),
        'follows its stream': (who) =>
          tried(who, path, 'GET', { accept: 'text/event-stream', 'last-event-id': `${id}_1` }),
        'follows its stream from the start': (who) =>
          tried(who, path, 'GET', { accept: 'text/event-stream', 'last-event-id': `${id}_0` }),
      },
      async finish() {
        await tried(as, path, 'POST', { 'mcp-stream-id': id }, responded(ask, ANSWER));
        await stream.message((message) => message.id === CALL);
        return stream.text;
      },
      close: () => stream.close(),
    };
  },
};

export const WIRES: readonly Wire[] = [
  rounds,
  tasks,
  live('2025-11-25'),
  live('2025-03-26'),
  sessionTasks,
  draft(FIRST),
  draft(APPROVED),
  buffered,
  oldest,
  workspace,
];

/** Runs every attempt, one after the other; returns the replies by attempt. */
export async function tryAll({ attempts }: Held, as: As): Promise<ReadonlyMap<string, string>> {
  const came = new Map<string, string>();
  for (const [name, attempt] of Object.entries(attempts)) came.set(name, await attempt(as));
  return came;
}

/**
 * Asserts that only its caller learned anything of a call, and that its state is unchanged: its caller answers, and
 * gets the outcome.
 */
export async function expectUntouched(
  held: Held,
  came: ReadonlyMap<string, string>,
  effects: readonly string[],
): Promise<void> {
  for (const [name, text] of came) {
    for (const told of [WORD, QUESTION, 'forged']) expect(text, `who ${name} is told`).not.toContain(told);
  }
  expect(effects.filter((effect) => effect.includes('forged'))).toEqual([]);
  expect(await held.finish(), 'what its caller gets').toContain(`${WORD} answered`);
}
