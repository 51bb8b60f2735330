/** Processes that are killed around a question on the page: nothing is done twice, and nothing is lost. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema, type ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { begin } from '../e2e/anywhere.ts';
import { balance, clockAhead, compiled, effectsIn, SECRET, scratch } from '../e2e/harness.ts';
import { hasClock, STORES } from '../e2e/services.ts';
import { some } from '../short.ts';
import { linkIn, PersonAtPage } from './person.ts';

const ORIGIN = 'http://127.0.0.1:1';
let script = '';
beforeAll(async () => {
  script = await compiled(new URL('../fixtures/page-server.ts', import.meta.url).pathname);
});

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function start(
  store: string,
  file: string,
  env: object = {},
): Promise<{ url: string; child: ChildProcess }> {
  const child = spawn(process.execPath, [script], {
    env: {
      ...process.env,
      MCP_AWAIT_SECRET: SECRET,
      PAGE_STORE: store,
      PAGE_FILE: file,
      PAGE_URL: `${ORIGIN}/ask`,
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  cleanUps.push(() => child.kill('SIGKILL'));
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { url: line.replace('listening on ', ''), child };
}

async function killed(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

const RETRIES = {
  initialReconnectionDelay: 200,
  maxReconnectionDelay: 500,
  reconnectionDelayGrowFactor: 1,
  maxRetries: 30,
};

async function opened(url: string, answers?: () => ElicitResult | Promise<ElicitResult>): Promise<Client> {
  const capabilities = answers && { elicitation: { form: {} } };
  const client = new Client({ name: 'host', version: '1' }, capabilities && { capabilities });
  if (answers) client.setRequestHandler(ElicitRequestSchema, () => answers());
  const options = { reconnectionOptions: RETRIES };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), options) as Transport);
  cleanUps.push(() => client.close());
  return client;
}

async function open(
  kind: '2025-11-25' | '2026-07-28',
  url: string,
): Promise<(to: string) => Promise<string>> {
  const info = { name: 'host', version: '1' };
  let client: Client | ModernClient;
  if (kind === '2025-11-25') client = await opened(url);
  else {
    client = new ModernClient(info, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
    await client.connect(new ModernTransport(new URL(url)));
    cleanUps.push(() => client.close());
  }
  return async (to) => {
    const { content } = (await client.callTool({ name: 'book', arguments: { to } })) as {
      content: { text: string }[];
    };
    return content[0]?.text ?? '';
  };
}

async function answer(text: string, at: string): Promise<void> {
  expect((await new PersonAtPage().answer(at, linkIn(text), { day: 'Monday' })).status).toBe(303);
}

/** The link to a question, once it is in the list. */
async function linkTo(to: string, at: string): Promise<string> {
  const list = async (): Promise<string> =>
    (await fetch(at.replace('/mcp', '/ask'), { headers: { 'x-person': 'ann' } })).text();
  await expect.poll(list).toContain(to);
  return (await list()).match(new RegExp(`${ORIGIN}/ask/[^"]*(?="[^]*${to})`))?.[0] ?? '';
}

describe.each(some(STORES.filter(({ down }) => !down)))('with $name', (service) => {
  const kinds = some(['2025-11-25', '2026-07-28'] as const);
  const aheads = hasClock(service) ? [0, 7_200_000] : [0];
  it.each(kinds.flatMap((kind) => aheads.map((ahead) => [kind, ahead] as const)))(
    '%s: begun at A, answered at B, called again at C, with A killed, and their clocks %d ms apart',
    async (kind, ahead) => {
      // Of a run before, the call of the same arguments would be done.
      const to = randomUUID();
      const file = join(scratch(), 'effects');
      writeFileSync(`${file}.${to}`, '');
      const store = service.url();
      const [a, b, c] = await Promise.all([
        start(store, file),
        start(store, file, clockAhead(-ahead)),
        start(store, file, clockAhead(ahead)),
      ]);
      const asked = await (await open(kind, a.url))(to);
      expect(asked).toMatch(/^NOT DONE YET/);
      await killed(a.child);
      await answer(asked, b.url);
      const call = await open(kind, c.url);
      expect(await call(to)).toBe('booked on Monday');
      expect(await call(to)).toMatch(/^This call was already done/);
      expect(effectsIn(file)).toEqual([`hold ${to}`, `pay ${to}`]);
    },
  );

  it('2025-11-25: killed as the first step after the answer begins', async () => {
    const file = join(scratch(), 'effects');
    const to = randomUUID();
    writeFileSync(`${file}.${to}`, '');
    const store = service.url();
    const servers = await Promise.all([start(store, file, { PAGE_DIES: '' }), start(store, file)]);
    const session = await begin(servers, {});
    const call = (id: number) => ({ id, method: 'tools/call', params: { name: 'book', arguments: { to } } });
    const asked = await (await session.post(0, call(1))).next(({ id }) => id === 1);
    await answer(String(asked.result?.content?.[0]?.text), servers[1].url);
    const again = await session.post(0, call(2));
    await expect.poll(() => again.over).toBe(true);
    const { result } = await (await session.get(1, again.last)).next(({ id }) => id === 2);
    expect(result?.content?.[0]?.text).toBe('booked on Monday');
    expect(effectsIn(file)).toEqual([`hold ${to}`, `pay ${to}`]);
  });

  it('2025-11-25: killed after a step, before the question', async () => {
    const file = join(scratch(), 'effects');
    const store = service.url();
    const to = randomUUID();
    const [a, b] = await Promise.all([start(store, file), start(store, file)]);
    let at = 0;
    const front = await balance([a.url, b.url], () => at);
    cleanUps.push(() => front.close());
    const call = await open('2025-11-25', front.url);
    const asked = call(to);
    await expect.poll(() => existsSync(`${file}.held`)).toBe(true);
    at = 1;
    await killed(a.child);
    writeFileSync(`${file}.${to}`, '');
    const text = await asked;
    expect(text).toMatch(/^NOT DONE YET/);
    await answer(text, b.url);
    expect(await call(to)).toBe('booked on Monday');
    expect(effectsIn(file)).toEqual([`hold ${to}`, `pay ${to}`]);
  });

  it('2025-11-25: killed while its client has the question, which declines the next one by itself', async () => {
    const file = join(scratch(), 'effects');
    const store = service.url();
    const to = randomUUID();
    writeFileSync(`${file}.${to}`, '');
    const [a, b] = await Promise.all([start(store, file), start(store, file)]);
    let at = 0;
    const front = await balance([a.url, b.url], () => at);
    cleanUps.push(() => front.close());
    let asked = 0;
    const client = await opened(front.url, () => {
      asked += 1;
      return asked === 1 ? new Promise(() => {}) : { action: 'decline' };
    });
    const call = client.callTool({ name: 'book', arguments: { to } });
    await expect.poll(() => asked).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    at = 1;
    await killed(a.child);
    const { content } = (await call) as { content: { text: string }[] };
    expect(content[0]?.text).toMatch(/^NOT DONE YET/);
    expect(asked).toBe(2);
    expect(effectsIn(file)).toEqual([`hold ${to}`]);
  });

  it('2025-11-25: killed in a step beside its question, which ends the call', async () => {
    const file = join(scratch(), 'effects');
    const to = randomUUID();
    const store = service.url();
    const [a, b] = await Promise.all([start(store, file), start(store, file)]);
    const call = async (url: string): Promise<string> => {
      const { content } = (await (await opened(url)).callTool({ name: 'race', arguments: { to } })) as {
        content: { text: string }[];
      };
      return content[0]?.text ?? '';
    };
    expect(await call(a.url)).toMatch(/^NOT DONE YET/);
    await killed(a.child);
    writeFileSync(`${file}.${to}`, '');
    expect(await call(b.url)).toBe('the step was first');
  });

  it('2025-11-25: killed with a part of the answers, while the page’s comes in time', async () => {
    const file = join(scratch(), 'effects');
    const to = randomUUID();
    const store = service.url();
    const [a, b] = await Promise.all([start(store, file), start(store, file)]);
    const answers = (): ElicitResult => ({ action: 'accept', content: { day: 'Friday' } });
    const [host, other] = [await opened(a.url, answers), await opened(b.url, answers)];
    const pair = { name: 'pair', arguments: { to } };
    const begun = Date.now();
    void host.callTool(pair).catch(() => {});
    await expect.poll(() => existsSync(`${file}.held`)).toBe(true);
    await killed(a.child);
    await answer(await linkTo(to, b.url), b.url);
    writeFileSync(`${file}.${to}`, '');
    await new Promise((resolve) => setTimeout(resolve, begun + 7_000 - Date.now()));
    const { content } = (await other.callTool(pair)) as { content: { text: string }[] };
    expect(content[0]?.text).toBe('booked on Monday, else Friday');
  });

  it('2025-11-25: a task whose process is killed while its question is open', async () => {
    const file = join(scratch(), 'effects');
    const to = randomUUID();
    writeFileSync(`${file}.${to}`, '');
    const store = service.url();
    const [a, b] = await Promise.all([start(store, file), start(store, file)]);
    const client = await opened(a.url);
    const { task } = await client.request(
      { method: 'tools/call', params: { name: 'book', arguments: { to }, task: { ttl: 600_000 } } },
      z.looseObject({ task: z.looseObject({ taskId: z.string() }) }),
    );
    const link = await linkTo(to, b.url);
    await killed(a.child);
    await answer(link, b.url);
    const other = await opened(b.url);
    const { content } = await other.request(
      { method: 'tasks/result', params: { taskId: task.taskId } },
      z.looseObject({ content: z.array(z.looseObject({ text: z.string() })) }),
    );
    expect(content[0]?.text).toBe('booked on Monday');
    expect(effectsIn(file)).toEqual([`hold ${to}`, `pay ${to}`]);
  });
});
