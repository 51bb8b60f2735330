/** SDK v1's Client on 2026-07-28, by our transport: over our server, through two processes, and over the official one. */
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { McpServer as LegacyServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  ElicitRequestSchema,
  type ElicitResult,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { createMcpHandler, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import buildBoth from '../../examples/side-by-side.ts';
import { tuned } from '../../src/call/limits.ts';
import {
  type AwaitClientOptions,
  AwaitClientTransport,
  resuming,
  type SavedCall,
} from '../../src/client/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { some } from '../short.ts';
import {
  CAPABILITIES,
  type ElicitAnswer,
  filledIn,
  legacy,
  type Script,
  type TestClient,
} from './clients.ts';
import { asking, balance, effectsIn, type Served, scratch, serveHere, spawnServers } from './harness.ts';
import { KINDS } from './services.ts';
import { TOOLS } from './tools.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});
/** Closes it after the test, before everything opened earlier. */
function closing<T extends { close(): Promise<void> }>(one: T): T {
  open.unshift(one);
  return one;
}

const transport = (url: string, options: Partial<AwaitClientOptions> = {}) =>
  new AwaitClientTransport(url, { revision: '2026-07-28', ...options });

async function connect(
  url: string,
  script: Script = {},
  options: Partial<AwaitClientOptions> = {},
): Promise<TestClient> {
  return closing(await legacy(url, script, transport(url, options)));
}

/** Without the wrapping: the SDK's own class. */
async function plain(
  url: string,
  answer: (params: Record<string, unknown>, signal: AbortSignal) => ElicitResult | Promise<ElicitResult>,
  options: Partial<AwaitClientOptions> = {},
): Promise<Client> {
  const client = new Client({ name: 'plain', version: '1' }, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, ({ params }, { signal }) => answer(params, signal));
  await client.connect(transport(url, options));
  return closing(client);
}

const serveAsking = (options: Parameters<typeof serveHere>[1] = {}, acts: string[] = []): Promise<Served> =>
  serveHere(() => buildServer((effect) => void acts.push(effect)), options).then(closing);
const textOf = (result: unknown): string | undefined =>
  (result as { content: { text?: string }[] }).content[0]?.text;
const until = async (condition: () => boolean): Promise<void> => {
  for (const end = Date.now() + 10_000; !condition(); ) {
    if (Date.now() > end) throw new Error(`waited in vain for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

describe('over our server', () => {
  it('every tool asks what it asks, and the prompt and the resource too', async () => {
    const served = await serveAsking();
    const client = await connect(served.url);
    for (const [name, text, questions] of TOOLS) {
      client.asked.length = 0;
      expect(await client.tool(name)).toBe(text);
      expect([...client.asked].sort()).toEqual([...questions].sort());
    }
    expect(await client.prompt('greet')).toBe('Greet its name');
    expect(await client.resource('diary://today')).toBe('Dear its name');
    expect(await client.toolNames()).toContain('one');
    expect(await client.tool('echo', { word: 'Grüße' })).toBe('Grüße its name');
  });

  it('steps run once, over calls at once', async () => {
    const acts: string[] = [];
    const served = await serveAsking({}, acts);
    const client = await connect(served.url);
    const many = await Promise.all(Array.from({ length: 8 }, () => client.tool('order')));
    expect(many).toEqual(Array.from({ length: 8 }, () => 'its name, its address, 43'));
    expect(acts.filter((act) => act === 'charge')).toHaveLength(8);
    expect(acts.filter((act) => act === 'ship')).toHaveLength(8);
  });

  it('progress and logs are heard on the way, at the level that was set', async () => {
    const served = await serveAsking();
    const client = new Client({ name: 'notes', version: '1' }, { capabilities: CAPABILITIES });
    closing(client);
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params));
    const logged: unknown[] = [];
    client.fallbackNotificationHandler = async ({ params }) => void logged.push(params?.data);
    await client.connect(transport(served.url));
    const progressed: number[] = [];
    const onprogress = ({ progress }: { progress: number }): void => void progressed.push(progress);
    const call = () => client.callTool({ name: 'notes', arguments: {} }, undefined, { onprogress });
    expect(textOf(await call())).toBe('its name of its city');
    expect(progressed).toEqual([1, 2, 3]);
    expect(logged).toEqual([]);
    await client.setLoggingLevel('info');
    await call();
    expect(logged).toEqual(['note 1', 'note 2', 'note 3']);
    await client.setLoggingLevel('error');
    await call();
    expect(logged).toHaveLength(3);
    expect(await client.ping()).toEqual({});
  });

  it('a call as a task has the same result, and its answers go out once', async () => {
    const served = await serveAsking({ tasks: () => 'now', ...tuned({ taskPoll: 20 }) });
    const balancer = closing(await balance([served.url]));
    const client = await connect(balancer.url);
    for (const [name, text, questions] of TOOLS) {
      client.asked.length = 0;
      expect(await client.tool(name)).toBe(text);
      expect([...client.asked].sort()).toEqual([...questions].sort());
    }
    const sent = balancer.posts.map(({ request }) => request.method);
    expect(sent.filter((method) => method === 'tools/call')).toHaveLength(TOOLS.length);
    expect(sent.filter((method) => method === 'tasks/get').length).toBeGreaterThan(TOOLS.length);
    const keys = balancer.posts.flatMap(({ request: { method, params } }) =>
      method === 'tasks/update'
        ? Object.keys(params?.inputResponses as object).map((key) => `${params?.taskId} ${key}`)
        : [],
    );
    expect(new Set(keys).size).toBe(keys.length);
    expect(keys).toHaveLength(TOOLS.flatMap(([, , questions]) => questions).length);
  });

  it('a task is cancelled when its user will not answer, and when its caller waits no longer', async () => {
    const served = await serveAsking({ tasks: () => 'now', ...tuned({ taskPoll: 20 }) });
    const balancer = closing(await balance([served.url]));
    const cancels = () => balancer.posts.filter(({ request }) => request.method === 'tasks/cancel');
    const absent = await plain(balancer.url, () => {
      throw new Error('nobody is here');
    });
    await expect(absent.callTool({ name: 'one', arguments: {} })).rejects.toThrow(/nobody is here/);
    await until(() => cancels().length === 1 && cancels()[0]?.reply !== '');
    let asked = 0;
    const waiting = await plain(balancer.url, () => {
      asked += 1;
      return new Promise(() => {});
    });
    const controller = new AbortController();
    const called = waiting.callTool({ name: 'one', arguments: {} }, undefined, controller);
    await until(() => asked === 1);
    controller.abort('enough');
    await expect(called).rejects.toThrow(/enough/);
    await until(() => cancels().length === 2 && cancels()[1]?.reply !== '');
    for (const { reply } of cancels()) expect(JSON.parse(reply)).toHaveProperty('result');
  });

  it('a call that asks often continues as a task; a client that takes none gives up', async () => {
    const wizard = () => {
      const server = new LegacyServer({ name: 'wizard', version: '1' });
      const requestedSchema = { type: 'object' as const, properties: {} };
      server.registerTool('wizard', {}, async () => {
        for (let page = 1; page <= 12; page += 1) {
          await server.server.elicitInput({ message: `page ${page}`, requestedSchema });
        }
        return { content: [{ type: 'text', text: 'twelve pages' }] };
      });
      return server;
    };
    const served = closing(await serveHere(wizard, { ...tuned({ taskPoll: 20 }) }));
    const client = await connect(served.url);
    expect(await client.tool('wizard')).toBe('twelve pages');
    expect(client.asked).toHaveLength(12);
    const poor = await connect(served.url, {}, { tasks: false, maxRounds: 10 });
    await expect(poor.tool('wizard')).rejects.toThrow(/more input after 10 rounds/);
    const patient = await connect(served.url, {}, { tasks: false });
    expect(await patient.tool('wizard')).toBe('twelve pages');
  });

  it('a client that takes no tasks gets none', async () => {
    const served = await serveAsking({ tasks: () => 'now' });
    const balancer = closing(await balance([served.url]));
    const client = await connect(balancer.url, {}, { tasks: false });
    expect(await client.tool('in-turn')).toBe('its name, its city, its street');
    expect(balancer.posts.some(({ request }) => request.method?.startsWith('tasks/'))).toBe(false);
  });

  it('an elicitation that the handler refuses is cancelled, in the tool’s eyes', async () => {
    const served = await serveAsking();
    const client = await plain(served.url, () => {
      throw new Error('nobody is here');
    });
    expect(textOf(await client.callTool({ name: 'one', arguments: {} }))).toBe('Hello cancel');
  });

  it('a call that is cancelled asks no more, and is not sent again', async () => {
    const served = await serveAsking();
    let asked = 0;
    let aborted = false;
    const client = await plain(served.url, (_, signal) => {
      asked += 1;
      signal.addEventListener('abort', () => {
        aborted = true;
      });
      return new Promise(() => {});
    });
    const controller = new AbortController();
    const called = client.callTool({ name: 'in-turn', arguments: {} }, undefined, controller);
    await until(() => asked === 1);
    const before = served.requests();
    controller.abort('enough');
    await expect(called).rejects.toThrow(/enough/);
    await until(() => aborted);
    expect(served.requests()).toBe(before);
  });

  it('the server’s errors are the client’s', async () => {
    const served = await serveAsking();
    const client = await plain(served.url, () => ({ action: 'decline' }));
    await expect(client.readResource({ uri: 'diary://tomorrow' })).rejects.toMatchObject({ code: -32602 });
    await expect(
      client.request({ method: 'tasks/list' }, ToolListChangedNotificationSchema),
    ).rejects.toMatchObject({
      code: -32601,
    });
  });
});

describe('a call that is left, and gone on with', () => {
  it('by another client, after a restart of it, with the question that was open', async () => {
    const acts: string[] = [];
    const served = await serveAsking({}, acts);
    /** What an application keeps: JSON by the call's name. */
    const kept = new Map<string, string>();
    const onState = (saved: SavedCall | undefined, call: string): void => {
      if (saved === undefined) kept.delete(call);
      else kept.set(call, JSON.stringify(saved));
    };
    let answered = 0;
    const first = await plain(
      served.url,
      (params) => {
        answered += 1;
        return answered === 1 ? (filledIn(params) as ElicitResult) : new Promise(() => {});
      },
      { onState },
    );
    const left = first.callTool({ name: 'order', arguments: {} });
    left.catch(() => {});
    await until(() => answered === 2);
    await first.close();
    await expect(left).rejects.toThrow(/closed/i);

    expect(kept.size).toBe(1);
    const [json = ''] = kept.values();
    const asked: unknown[] = [];
    const second = await plain(
      served.url,
      (params) => {
        asked.push(params.message);
        return filledIn(params) as ElicitResult;
      },
      { onState },
    );
    const saved = JSON.parse(json) as SavedCall;
    expect(textOf(await second.callTool(resuming(saved)))).toBe('its name, its address, 43');
    expect(asked).toEqual(['name?']);
    expect(acts.filter((act) => act !== 'finally')).toEqual(['charge', 'ship']);
    await until(() => kept.size === 0);
  });

  it('stays good when its caller’s time is up', async () => {
    const served = await serveAsking();
    const states: (SavedCall | undefined)[] = [];
    const onState = (saved: SavedCall | undefined): void => void states.push(saved);
    let isHere = false;
    const answer = (params: Record<string, unknown>): ElicitResult | Promise<ElicitResult> =>
      isHere ? (filledIn(params) as ElicitResult) : new Promise(() => {});
    const client = await plain(served.url, answer, { onState });
    const late = client.callTool({ name: 'one', arguments: {} }, undefined, { timeout: 2_000 });
    await expect(late).rejects.toMatchObject({ code: -32001 });
    expect(states).toHaveLength(1);
    isHere = true;
    expect(textOf(await client.callTool(resuming(states[0] as SavedCall)))).toBe('Hello its name');
  });

  it('as a task, too', async () => {
    const served = await serveAsking({ tasks: () => 'now', ...tuned({ taskPoll: 20 }) });
    const states: (SavedCall | undefined)[] = [];
    let asked = 0;
    const first = await plain(
      served.url,
      () => {
        asked += 1;
        return new Promise(() => {});
      },
      { onState: (saved) => void states.push(saved) },
    );
    first.callTool({ name: 'one', arguments: {} }).catch(() => {});
    await until(() => asked === 1);
    await first.close();
    expect(states).toHaveLength(1);
    const second = await plain(served.url, (params) => filledIn(params) as ElicitResult);
    expect(textOf(await second.callTool(resuming(states[0] as SavedCall)))).toBe('Hello its name');
  });

  it('is refused where it is no such call', async () => {
    const served = await serveAsking();
    const client = await plain(served.url, (params) => filledIn(params) as ElicitResult);
    const saved: SavedCall = {
      call: 'c',
      revision: 'DRAFT-SEP-2322',
      method: 'tools/call',
      params: { name: 'one' },
    };
    for (const wrong of [saved, { ...saved, revision: '2026-07-28', method: 'prompts/get' }, 'nonsense']) {
      const params = { name: 'one', _meta: { 'mcp-await/resume': wrong } };
      await expect(client.callTool(params)).rejects.toThrow(/not one of tools\/call on 2026-07-28/);
    }
  });
});

for (const kind of some(KINDS)) {
  describe.skipIf(kind.down)(`through two processes: ${kind.name}`, () => {
    it('every tool, with each POST to the other process', async () => {
      const effects = join(scratch(), 'effects');
      const servers = await spawnServers('asking-server.ts', 2, {
        args: kind.args(),
        env: { EFFECTS: effects },
      });
      for (const server of servers) closing({ close: () => server.kill() });
      // By the calls alone: another POST, like that of a subscription, changes nothing.
      let nth = 0;
      const pick = (_: number, { method }: { method?: string }): number => {
        if (method === 'tools/call') nth += 1;
        return nth % 2;
      };
      const balancer = closing(
        await balance(
          servers.map((server) => server.url),
          pick,
        ),
      );
      const client = await connect(balancer.url);
      for (const [name, text] of TOOLS) expect(await client.tool(name)).toBe(text);
      expect(await client.tool('order')).toBe('its name, its address, 43');
      expect(effectsIn(effects).filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
      const many = await Promise.all(Array.from({ length: 5 }, () => client.tool('in-turn')));
      expect(new Set(many)).toEqual(new Set(['its name, its city, its street']));
      expect(new Set(asking(balancer.posts).map(({ to }) => to)).size).toBe(2);
    });
  });
}

/** No server listens there: requests go directly to the handler. */
const OFFICIAL = 'http://127.0.0.1/mcp';

describe('over the official server', () => {
  /** The official handler alone, without a network. */
  function official(build: () => McpServer) {
    const handler = closing(createMcpHandler(build, { legacy: 'reject' }));
    const fetch: AwaitClientOptions['fetch'] = (url, init) => handler.fetch(new Request(url, init));
    return { options: { fetch }, notify: handler.notify };
  }

  it('answers an inputRequired tool, over as many rounds as it takes', async () => {
    const { options } = official(() => {
      const server = buildBoth();
      server.registerTool('state', {}, (ctx) => {
        const { requestState } = ctx.mcpReq;
        const round = Number(requestState?.() ?? 0);
        if (round === 3) return { content: [{ type: 'text', text: 'three rounds' }] };
        return inputRequired({ requestState: String(round + 1) });
      });
      return server;
    });
    const client = await connect(
      OFFICIAL,
      { answer: (): ElicitAnswer => ({ action: 'accept', content: { name: 'Ann' } }) },
      options,
    );
    expect(await client.tool('greet_input_required')).toBe('Hello, Ann!');
    expect(client.asked).toEqual(['What is your name?']);
    expect(await client.tool('state')).toBe('three rounds');
  });

  it('mirrors the arguments that a tool of it wants in headers', async () => {
    const { options } = official(() => {
      const server = new McpServer({ name: 'regional', version: '1' });
      const inputSchema = z.object({ region: z.string().meta({ 'x-mcp-header': 'Region' }) });
      server.registerTool('where', { inputSchema }, ({ region }) => ({
        content: [{ type: 'text', text: region }],
      }));
      return server;
    });
    const client = await connect(OFFICIAL, {}, options);
    // It refuses a call without its mirrored header, and a client cannot mirror a tool that it has not listed.
    await expect(client.tool('where', { region: 'Zürich' })).rejects.toMatchObject({ code: -32020 });
    await client.toolNames();
    expect(await client.tool('where', { region: 'Zürich' })).toBe('Zürich');
  });

  it('hears of changed lists, and of resources that it subscribed to', async () => {
    const { options, notify } = official(() => {
      const server = new McpServer(
        { name: 'telling', version: '1' },
        { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } },
      );
      server.registerTool('none', {}, () => ({ content: [] }));
      server.registerResource('diary', 'diary://today', {}, ({ href }) => ({
        contents: [{ uri: href, text: '' }],
      }));
      return server;
    });
    const client = new Client({ name: 'listening', version: '1' });
    const heard: string[] = [];
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => void heard.push('tools'));
    client.setNotificationHandler(
      ResourceUpdatedNotificationSchema,
      ({ params }) => void heard.push(params.uri),
    );
    await client.connect(transport(OFFICIAL, options));
    closing(client);
    await client.subscribeResource({ uri: 'diary://today' });
    notify.resourceUpdated('diary://today');
    notify.resourceUpdated('diary://tomorrow');
    notify.toolsChanged();
    await until(() => heard.length === 2);
    expect(heard).toEqual(['diary://today', 'tools']);
    await client.unsubscribeResource({ uri: 'diary://today' });
    notify.resourceUpdated('diary://today');
    notify.toolsChanged();
    await until(() => heard.length === 3);
    expect(heard.at(-1)).toBe('tools');
  });
});
