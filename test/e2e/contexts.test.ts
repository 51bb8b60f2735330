/**
 * Asks and steps in an async context that is not their call's (invariant 13): a queue of concurrency 1, as p-queue and
 * fastq are, runs each job in the context of the call whose job came first.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { EventEmitter, once } from 'node:events';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpServer as ServerV2 } from '@modelcontextprotocol/server';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type CurrentCall, currentCall, step } from '../../src/index.ts';
import { until } from '../call/bench.ts';
import { legacy, modern } from './clients.ts';
import { type Served, serveHere } from './harness.ts';

/** One job at a time, in the async context of the caller that found it idle. */
class Queue {
  readonly waiting: (() => Promise<void>)[] = [];
  #isBusy = false;

  add<T>(job: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.waiting.push(() => job().then(resolve, reject));
      if (!this.#isBusy) void this.#work();
    });
  }

  async #work(): Promise<void> {
    this.#isBusy = true;
    for (let job = this.waiting.shift(); job !== undefined; job = this.waiting.shift()) await job();
    this.#isBusy = false;
  }
}

const reply = (text: string) => ({ content: [{ type: 'text' as const, text }] });
const NAME = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};

/** What one test's servers share, as a module would. */
function shared() {
  const gate = { open: (): void => {} };
  const opening = new Promise<void>((resolve) => {
    gate.open = resolve;
  });
  return { queue: new Queue(), open: gate.open, opened: () => opening, done: [] as string[] };
}

type Shared = ReturnType<typeof shared>;

function serverV1({ queue, opened, done }: Shared): McpServer {
  const server = new McpServer({ name: 'queued', version: '1.0.0' });
  const ask = async (): Promise<string> => {
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema: NAME });
    return String(content?.name);
  };
  const charge = async (): Promise<string> => {
    done.push('charge');
    return 'charged';
  };
  server.registerTool('first', {}, async () => {
    void queue.add(opened);
    return reply('over');
  });
  server.registerTool('first-and-asks', {}, async () => {
    void queue.add(opened);
    return reply(await ask());
  });
  server.registerTool('asks', {}, async () => reply(await queue.add(ask)));
  server.registerTool('asks-by-request', {}, async ({ sendRequest }) => {
    const { ElicitResultSchema } = await import('@modelcontextprotocol/sdk/types.js');
    const params = { message: 'name?', requestedSchema: NAME };
    const job = () => sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema);
    return reply(String((await queue.add(job)).content?.name));
  });
  server.registerTool('charges', {}, async () => reply(await queue.add(() => step('charge', charge))));
  /** Asks between two runs of itself, so that a step that is not in its journal is run twice. */
  const naming = (name: string, callOf: (extra: object) => object | undefined): void => {
    server.registerTool(name, {}, async (extra) => {
      const call = callOf(extra);
      const charged = await queue.add(() => step('charge', charge, { call }));
      return reply(`${charged} to ${await ask()}`);
    });
  };
  naming('charges-by-extra', (extra) => extra);
  naming('charges-by-spread', (extra) => ({ ...extra }));
  naming('charges-by-currentCall', () => currentCall());
  return server;
}

let served: Served;
afterEach(() => served.close());

/** Two callers, the first of whom has the queue; `second` begins while it does. */
async function queued(one: 'first' | 'first-and-asks', two: string, options: object = {}) {
  const common = shared();
  served = await serveHere(() => serverV1(common), options);
  const ann = await modern(served.url, {
    answer: () => common.opened().then(() => ({ action: 'cancel' as const })),
  });
  const bob = await modern(served.url);
  const first = ann.tool(one);
  if (one === 'first') await first;
  else await until(() => ann.asked.length > 0);
  const second = bob.tool(two);
  await until(() => common.queue.waiting.length > 0);
  common.open();
  const result = await second;
  await first;
  await Promise.all([ann.close(), bob.close()]);
  return { ...common, result, asked: { ann: ann.asked, bob: bob.asked }, log: served.log.text };
}

describe("an ask in another call's async context", () => {
  it('goes to the caller of its own server where that call is over', async () => {
    const { result, asked } = await queued('first', 'asks');
    expect(result).toBe('its name');
    expect(asked).toEqual({ ann: [], bob: ['name?'] });
  });

  it('is an error at once, and a line for the logger, where that call is alive', async () => {
    const { result, asked, log } = await queued('first-and-asks', 'asks');
    expect(result).toContain('error');
    expect(result).toContain('serves another call');
    expect(asked).toEqual({ ann: ['name?'], bob: [] });
    expect(log).toContain('serves another call');
  });

  it('goes to the request that it names', async () => {
    const { result, asked } = await queued('first-and-asks', 'asks-by-request');
    expect(result).toBe('its name');
    expect(asked).toEqual({ ann: ['name?'], bob: ['name?'] });
  });

  it('is an error where the server is that of a session', async () => {
    const common = shared();
    served = await serveHere(() => serverV1(common));
    const ann = await legacy(served.url, {
      answer: () => common.opened().then(() => ({ action: 'cancel' as const })),
    });
    const bob = await legacy(served.url);
    const first = ann.tool('first-and-asks');
    await until(() => ann.asked.length > 0);
    const second = bob.tool('asks');
    await until(() => common.queue.waiting.length > 0);
    common.open();
    expect(await second).toContain('serves another call');
    await first;
    expect([ann.asked, bob.asked]).toEqual([['name?'], []]);
    await Promise.all([ann.close(), bob.close()]);
  });
});

describe("a step in another call's async context", () => {
  it('throws at once where that call is over, and the queue continues', async () => {
    const { result, done, queue } = await queued('first', 'charges');
    expect(result).toContain('which has ended');
    expect(done).toEqual([]);
    expect(await queue.add(async () => 'next')).toBe('next');
  });

  it.each(['extra', 'spread', 'currentCall'])(
    'is its own call’s where it names that by %s, and runs once in a call that is replayed',
    async (how) => {
      for (const one of ['first', 'first-and-asks'] as const) {
        const { result, done } = await queued(one, `charges-by-${how}`, { limits: { frames: 0 } });
        expect([result, done]).toEqual(['charged to its name', ['charge']]);
        await served.close();
      }
    },
  );

  it('is its own call’s where it names that by ctx of SDK v2', async () => {
    const { queue, open, opened, done } = shared();
    served = await serveHere(
      () => {
        const server = new ServerV2({ name: 'queued', version: '1.0.0' });
        server.registerTool('first', {}, async () => {
          void queue.add(opened);
          return reply('over');
        });
        server.registerTool('charges', {}, async (ctx) => {
          const job = () => step('charge', () => void done.push('charge'), { call: ctx });
          await queue.add(job);
          const { content } = await ctx.mcpReq.elicitInput({ message: 'name?', requestedSchema: NAME });
          return reply(String(content?.name));
        });
        return server;
      },
      { limits: { frames: 0 } },
    );
    const client = await modern(served.url);
    await client.tool('first');
    const second = client.tool('charges');
    await until(() => queue.waiting.length > 0);
    open();
    expect([await second, done]).toEqual(['its name', ['charge']]);
    await client.close();
  });
});

describe('a step that names a call', () => {
  it('throws where that call is over', async () => {
    let call: CurrentCall | undefined;
    served = await serveHere(() => {
      const server = new McpServer({ name: 'late', version: '1.0.0' });
      server.registerTool('keeps-its-name', {}, async () => {
        call = currentCall();
        return reply('done');
      });
      return server;
    });
    const client = await modern(served.url);
    await client.tool('keeps-its-name');
    await expect(step('charge', () => 'charged', { call })).rejects.toMatchObject({ code: 'call-over' });
    await client.close();
  });

  it('that mcp-await does not serve is just run', async () => {
    served = await serveHere(() => new McpServer({ name: 'none', version: '1.0.0' }));
    expect(await step('charge', () => 'charged', { call: { signal: AbortSignal.timeout(1) } })).toBe(
      'charged',
    );
    expect(await step('charge', () => 'charged', { call: {} })).toBe('charged');
    expect(currentCall()).toBeUndefined();
  });
});

describe('with steps: false, a step that names its call', () => {
  const charging = (done: string[]): McpServer => {
    const server = new McpServer({ name: 'named', version: '1.0.0' });
    const ask = async (): Promise<string> => {
      const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema: NAME });
      return String(content?.name);
    };
    server.registerTool('charges', {}, async (extra) => {
      const part = (name: string) => step(name, () => void done.push(name), { call: extra });
      await step('charge', () => part('part'), { call: { ...extra } });
      return reply(await ask());
    });
    server.registerTool('asks-inside', {}, async (extra) =>
      reply(await step('charge', ask, { call: extra }).catch((error) => error.code)),
    );
    server.registerTool('plain', {}, async () => reply('plain'));
    return server;
  };

  it('runs once in a call that is replayed, with the steps inside of it', async () => {
    const done: string[] = [];
    served = await serveHere(() => charging(done), { steps: false, limits: { frames: 0 } });
    for (const connect of [modern, legacy]) {
      const client = await connect(served.url);
      expect([await client.tool('charges'), done.splice(0)]).toEqual(['its name', ['part']]);
      await client.close();
    }
    expect(served.log.text).not.toContain('without the steps');
  });

  it('refuses an ask inside of it', async () => {
    served = await serveHere(() => charging([]), { steps: false });
    for (const connect of [modern, legacy]) {
      const client = await connect(served.url);
      expect(await client.tool('asks-inside')).toBe('ask-in-step');
      await client.close();
    }
  });

  it('is what enters a context; no other call does', async () => {
    const entered: object[] = [];
    const original = AsyncLocalStorage.prototype.run;
    const run = vi.spyOn(AsyncLocalStorage.prototype, 'run');
    run.mockImplementation(function (this: AsyncLocalStorage<unknown>, ...args) {
      entered.push(this);
      return original.apply(this, args);
    });
    const ours = () =>
      entered.splice(0).filter((one) => one === Reflect.get(globalThis, Symbol.for('mcp-await.context.1')));
    served = await serveHere(() => charging([]), { steps: false });
    for (const connect of [modern, legacy]) {
      const client = await connect(served.url);
      expect(await client.tool('plain')).toBe('plain');
      expect(ours()).toEqual([]);
      await client.tool('charges');
      expect(ours()).not.toEqual([]);
      await client.close();
    }
    run.mockRestore();
  });
});

describe('an ask that has lost its async context', () => {
  /** A worker that was started with the module, and gets its jobs by events. */
  function withWorker(): (options?: object) => Promise<Served> {
    return (options) =>
      serveHere(() => {
        const server = new McpServer({ name: 'worker', version: '1.0.0' });
        const jobs = new EventEmitter();
        const work = async (): Promise<void> => {
          for (;;) {
            const [done] = (await once(jobs, 'job')) as [(name: string) => void];
            const asked = server.server.elicitInput({ message: 'name?', requestedSchema: NAME });
            done(String((await asked).content?.name));
          }
        };
        void work();
        server.registerTool('works', {}, async () => {
          const name = new Promise<string>((resolve) => void jobs.emit('job', resolve));
          return reply(await name);
        });
        return server;
      }, options);
  }

  it.each([100, 0])('suspends the one call of its server (frames kept: %i)', async (frames) => {
    served = await withWorker()({ limits: { frames } });
    const client = await modern(served.url);
    expect(await client.tool('works')).toBe('its name');
    expect(client.asked).toEqual(['name?']);
    await client.close();
  });

  it('that comes after its call is over is an error', async () => {
    let late: Promise<unknown> | undefined;
    const gate = new EventEmitter();
    served = await serveHere(() => {
      const server = new McpServer({ name: 'late', version: '1.0.0' });
      server.registerTool('asks-late', {}, async () => {
        late = once(gate, 'open').then(() =>
          server.server.elicitInput({ message: 'name?', requestedSchema: NAME }),
        );
        late.catch(() => {});
        return reply('done');
      });
      return server;
    });
    const client = await modern(served.url);
    await client.tool('asks-late');
    gate.emit('open');
    await expect(late).rejects.toThrow('over');
    await client.close();
  });
});
