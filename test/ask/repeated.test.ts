/** The page asked one question of a call, or more: an equal call gets the outcome again, also where the client answered the rest. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as z from 'zod';
import { step } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { type Answers, type Caller, KINDS, openCaller } from './callers.ts';
import { slowly, takeClock } from './clock.ts';
import { askOptions, linkIn, PAGE, PersonAtPage } from './person.ts';

const YES: ElicitResult = { action: 'accept', content: { day: 'by the client' } };
const PERSON = { 'mcp-await/by': 'person' };
const ann = new PersonAtPage();
let paid = 0;
let asks: (server: McpServer) => Promise<unknown>;

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', { inputSchema: { to: z.string() } }, async () => {
    const answer = await asks(server);
    await step('pay', () => {
      paid += 1;
    });
    return { content: [{ type: 'text', text: JSON.stringify(answer) }] };
  });
  return server;
}

async function form({ server }: McpServer, message: string, meta = {}): Promise<ElicitResult> {
  const requestedSchema = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
  return server.elicitInput({ message, requestedSchema, _meta: meta });
}

const cleanUps: (() => unknown)[] = [];
let served: Served;
beforeEach(async () => {
  paid = 0;
  takeClock();
  served = await serveHere(build, {
    secrets: [SECRET],
    store: await openStore(SQLITE.url()),
    ask: askOptions,
    limits: { lease: 3_600_000 },
  });
  cleanUps.push(() => served.close());
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  vi.restoreAllMocks();
});

describe.each(KINDS)('%s', (kind) => {
  const open = async (answers: Answers, capabilities?: Record<string, object>): Promise<Caller> => {
    const caller = await openCaller(kind, served.url, answers, capabilities && { capabilities });
    cleanUps.push(() => caller.close());
    return caller;
  };
  const onPage = async (caller: Caller): Promise<void> => {
    const told = await caller.call('rome');
    expect(told).toMatch(/^NOT DONE YET/);
    await ann.answer(served.url, linkIn(told), { day: 'Monday' });
  };
  const expectRepeated = async (caller: Caller): Promise<void> => {
    await caller.call('rome');
    expect(paid).toBe(1);
    expect(await caller.call('rome')).toMatch(/^This call was already done/);
    expect(paid).toBe(1);
  };

  it('where a person answered first, and the client later', async () => {
    asks = async (server) => [await form(server, 'One?', PERSON), await form(server, 'Two?')];
    const caller = await open(slowly(YES));
    await onPage(caller);
    await expectRepeated(caller);
  });

  it('where the client was not believed at first, and later it was', async () => {
    let asked = 0;
    asks = async (server) => [await form(server, 'One?'), await form(server, 'Two?')];
    const caller = await open(() => {
      asked += 1;
      return asked === 1 ? { action: 'decline' } : YES;
    });
    await onPage(caller);
    await expectRepeated(caller);
  });

  it('where a person answered first, and the client sampled later', async () => {
    asks = async (server) => [
      await form(server, 'One?'),
      await server.server.createMessage({ messages: [], maxTokens: 5 }),
    ];
    const caller = await open(slowly(YES), { sampling: {} });
    await onPage(caller);
    await expectRepeated(caller);
  });

  it('where the page waited, and a client of the same name that can be asked had the answer', async () => {
    asks = (server) => form(server, 'One?');
    const told = await (await open(slowly(YES), {})).call('rome');
    expect(told).toMatch(/^NOT DONE YET/);
    await expectRepeated(await open(slowly(YES)));
  });

  it('where a person answered on the page while the client showed the question', async () => {
    asks = (server) => form(server, 'One?');
    const caller = await open(async () => {
      const [, link = ''] = /href="(http[^"]+\/ask\/[^"]+)"/.exec(await ann.read(served.url, PAGE)) ?? [];
      expect((await ann.answer(served.url, link, { day: 'Monday' })).status).toBe(303);
      return YES;
    });
    await expectRepeated(caller);
  });

  it("where the client's user declined to open the page", async () => {
    asks = (server) => form(server, 'One?');
    await expectRepeated(await open(slowly({ action: 'decline' }), { elicitation: { url: {} } }));
  });
});
