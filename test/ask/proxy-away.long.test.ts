/** A server behind the proxy that is away for a moment: what its calls were answered is not lost, and no outcome is made of it. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CallToolResultSchema,
  CreateTaskResultSchema,
  ElicitRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitHandler, createAwaitHandler, remoteHost, stdioHost } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { legacy, modern } from '../e2e/clients.ts';
import { listen, SECRET, type Served, scratch, serveHere, shut } from '../e2e/harness.ts';
import { modernServer } from '../fixtures/modern-server.ts';
import { answer, ask, callAs, linkIn, SERVER } from './proxied.ts';

let served: Served;
afterEach(() => served.close());

describe('a server that cannot be reached for a moment', () => {
  const GONE = 'The server behind this one ended or cannot be started';
  let flag = '';
  let pidFile = '';
  let call: () => Promise<string>;
  const goes = (): void => {
    writeFileSync(flag, '');
    process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
  };

  async function begin(headers: Readonly<Record<string, string>>): Promise<void> {
    const folder = scratch();
    [flag, pidFile] = [join(folder, 'away'), join(folder, 'pid')];
    // It does not start as long as the file is there.
    const script = `test -e '${flag}' && exit 1; echo $$ > '${pidFile}'; exec '${process.execPath}' '${SERVER}'`;
    const host = stdioHost({ command: 'sh', args: ['-c', script], replay: 'allow' });
    served = await serveHere(host, { secrets: [SECRET], ask });
    call = await callAs('ann', served.url, 'writes', headers);
  }

  it('is called again with the answer that its user gave meanwhile', async () => {
    await begin({});
    const link = linkIn(await call(), served);
    goes();
    await answer(link);
    await expect(call()).rejects.toThrow(new RegExp(GONE, 'i'));
    rmSync(flag);
    await expect.poll(() => call().catch(String)).toBe('Hello Ada');
  });

  it('is called once it can be, where the first request of a key could not reach it', async () => {
    await begin({ 'idempotency-key': 'one' });
    goes();
    await expect(call()).rejects.toThrow(new RegExp(GONE, 'i'));
    rmSync(flag);
    await expect.poll(() => call().catch(String)).toMatch(/^NOT DONE YET/);
  });
});

describe('a remote server of 2026-07-28 that cannot be reached for a moment', () => {
  const effects: string[] = [];
  let handler: AwaitHandler;
  let server: Server;
  let call: () => Promise<string>;
  let link: string;
  /** The status with which a balancer before the server refuses each request; 0 where it passes them on. */
  let status = 0;
  let refusals = 0;

  const create = (): Server => {
    const serve = toNodeHandler(handler);
    return createServer((req, res) => (status === 0 ? serve(req, res) : refuse(res)));
  };
  const refuse = (res: ServerResponse): void => {
    refusals += 1;
    res.writeHead(status).end('no');
  };

  async function begin(replay: 'allow' | 'never' = 'never'): Promise<void> {
    await serve(replay);
    call = await callAs('ann', served.url, 'order');
    link = linkIn(await call(), served);
  }

  async function serve(replay: 'allow' | 'never'): Promise<void> {
    effects.length = 0;
    status = 0;
    handler = createAwaitHandler(() => modernServer((effect) => void effects.push(effect)), {
      revisions: ['2026-07-28'],
      secrets: [SECRET],
    });
    server = create();
    const url = `${await listen(server)}/mcp`;
    const host = remoteHost({ url, upstream: '2026-07-28', replay });
    served = await serveHere(host, { secrets: [SECRET], tasks: 'optional', ask });
  }
  afterEach(async () => {
    await shut(server);
    await handler.close();
  });

  async function away(between: () => Promise<unknown>): Promise<void> {
    const { port } = server.address() as AddressInfo;
    await shut(server);
    await between();
    server = create();
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  }

  it('gets the answer that its user gave meanwhile by the next request, and nothing twice', async () => {
    await begin();
    await away(async () => {
      await answer(link);
      await expect(call()).rejects.toThrow('cannot be reached');
    });
    expect(await call()).toContain('shipped to Ada, charged');
    expect(effects).toEqual(['charge', 'ship']);
  });

  it.each([
    [401, 'never'],
    [403, 'never'],
    [429, 'never'],
    [503, 'never'],
    [302, 'never'],
    // By these a server may have got the request.
    [502, 'allow'],
    [504, 'allow'],
    [404, 'allow'],
    // Without a content type, as a gateway's own page.
    [200, 'allow'],
    [204, 'allow'],
  ] as const)('goes on after replies %i, where replay is %s', async (refused, replay) => {
    await begin(replay);
    await answer(link);
    status = refused;
    await expect(call()).rejects.toThrow();
    status = 0;
    expect(await call()).toContain('shipped to Ada, charged');
    expect(effects).toEqual(['charge', 'ship']);
  });

  it.each([legacy, modern])(
    'gets the answer of a client by whose request it replied 502 (%o)',
    async (connect) => {
      await serve('allow');
      const client = await connect(served.url, {
        answer: async () => {
          status = 502;
          setTimeout(() => {
            status = 0;
          }, 5_000);
          return { action: 'accept', content: { name: 'Ada' } };
        },
      });
      expect(await client.tool('order')).toBe('shipped to Ada, charged');
      expect(effects).toEqual(['charge', 'ship']);
      await client.close();
    },
  );

  it.each([
    [401, 'never', 20_000],
    [503, 'never', 45_000],
    [502, 'allow', 4_000],
    [302, 'never', 4_000],
    [200, 'allow', 4_000],
  ] as const)('ends no task by replies %i, where replay is %s', async (refused, replay, pause) => {
    await serve(replay);
    const client = new Client({ name: 'host', version: '1' });
    const requestInit = { headers: { authorization: 'Bearer ann' } };
    await client.connect(
      new StreamableHTTPClientTransport(new URL(served.url), { requestInit }) as Transport,
    );
    const params = { name: 'order', arguments: {}, task: { ttl: 600_000 } };
    const { task } = await client.request({ method: 'tools/call', params }, CreateTaskResultSchema);
    const { origin } = new URL(served.url);
    const listed = async (): Promise<string> =>
      /href="[^"]*(\/ask\/[^"]+)"/.exec(await (await fetch(`${origin}/ask`)).text())?.[1] ?? '';
    await expect.poll(listed).not.toBe('');
    link = `${origin}${await listed()}`;
    status = refused;
    await answer(link);
    await sleep(pause);
    status = 0;
    const { taskId } = task;
    const result = await client.request({ method: 'tasks/result', params: { taskId } }, CallToolResultSchema);
    expect(result.content).toMatchObject([{ text: 'shipped to Ada, charged' }]);
    expect(effects).toEqual(['charge', 'ship']);
    await client.close();
  });

  it('is asked now and then about a task whose client answers', async () => {
    await serve('never');
    const client = new Client({ name: 'host', version: '1' }, { capabilities: { elicitation: {} } });
    refusals = 0;
    client.setRequestHandler(ElicitRequestSchema, () => {
      status = 401;
      return { action: 'accept', content: { name: 'Ada' } };
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)) as Transport);
    const params = { name: 'order', arguments: {}, task: { ttl: 600_000 } };
    const { task } = await client.request({ method: 'tools/call', params }, CreateTaskResultSchema);
    const { taskId } = task;
    const result = client.request({ method: 'tasks/result', params: { taskId } }, CallToolResultSchema);
    await sleep(12_000);
    // A loop without pauses would ask some hundreds of times.
    expect(refusals).toBeLessThan(12);
    await expect.poll(() => refusals).toBeGreaterThan(2);
    status = 0;
    expect((await result).content).toMatchObject([{ text: 'shipped to Ada, charged' }]);
    expect(effects).toEqual(['charge', 'ship']);
    await client.close();
  });

  it('goes on with the request that came meanwhile, where too many had come', async () => {
    await begin();
    await answer(link);
    status = 429;
    const called = call();
    await sleep(2_000);
    status = 0;
    expect(await called).toContain('shipped to Ada, charged');
    expect(effects).toEqual(['charge', 'ship']);
  });

  it('gets the answer of a client, whose request waits for it', async () => {
    await begin();
    let back: Promise<void> | undefined;
    const client = await legacy(served.url, {
      answer: async () => {
        back = away(() => sleep(10_000));
        await sleep(100);
        return { action: 'accept', content: { name: 'Ada' } };
      },
    });
    expect(await client.tool('order')).toBe('shipped to Ada, charged');
    await back;
    expect(effects).toEqual(['charge', 'charge', 'ship']);
    await client.close();
  });
});

describe('a remote server of 2025-11-25 that refuses a call for a moment', () => {
  it.each([
    [429, 'at once'],
    [503, 'at once'],
    [502, 'at once'],
    [200, 'at once'],
    [401, 'by the next call'],
    [403, 'by the next call'],
  ] as const)(
    'is called again after replies %i, with the answer that its user gave: %s',
    async (refused, when) => {
      const effects: string[] = [];
      let status = 0;
      const behind = createAwaitHandler(
        () => {
          const server = new McpServer({ name: 'behind', version: '1' });
          server.registerTool('order', {}, async () => {
            const requestedSchema = {
              type: 'object' as const,
              properties: { name: { type: 'string' as const } },
            };
            const { content } = await server.server.elicitInput({ message: 'Who?', requestedSchema });
            effects.push('ship');
            return { content: [{ type: 'text', text: `shipped to ${content?.name}` }] };
          });
          return server;
        },
        { revisions: ['2025-11-25'], secrets: [SECRET] },
      );
      const serve = toNodeHandler(behind);
      const server = createServer(async (req, res) => {
        const pieces: Buffer[] = [];
        for await (const piece of req) pieces.push(piece as Buffer);
        const text = String(Buffer.concat(pieces));
        if (status !== 0 && text.includes('tools/call')) return void res.writeHead(status).end('no');
        await serve(Object.assign(req, text !== '' && { body: JSON.parse(text) }), res);
      });
      const url = `${await listen(server)}/mcp`;
      // It is ended before its ask times out, and the call is run again once the answer is there.
      const host = remoteHost({ url, upstream: '2025-11-25', replay: 'allow', askTimeout: 2_000 });
      served = await serveHere(host, { secrets: [SECRET], ask });
      const call = await callAs('ann', served.url, 'order');
      const link = linkIn(await call(), served);
      await sleep(3_000);
      status = refused;
      await answer(link);
      const called = call();
      if (when === 'by the next call')
        await expect(called).rejects.toThrow(`refused the request (${refused})`);
      else await sleep(3_000);
      status = 0;
      expect(await (when === 'at once' ? called : call())).toContain('shipped to Ada');
      expect(effects).toEqual(['ship']);
      await shut(server);
      await behind.close();
    },
  );
});
