/** An equal call that reaches a process of another version, which has not its tool: what its person answered stays. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { step } from '../../src/index.ts';
import { LogBook, type Served } from '../e2e/harness.ts';
import { linkIn, PAGE, PersonAtPage } from './person.ts';
import { cleanUp, connected, request, serveTwo } from './two.ts';

const ann = new PersonAtPage();
const call = { name: 'book', arguments: { room: 'blue' } };
const requestedSchema = { type: 'object' as const, properties: { day: { type: 'string' as const } } };
let paid = 0;

afterEach(cleanUp);

function booking(): McpServer {
  const server = new McpServer({ name: 'booking', version: '2' });
  server.registerTool('book', { inputSchema: { room: z.string() } }, async ({ room }) => {
    await step('pay', () => {
      paid += 1;
    });
    const { content } = await server.server.elicitInput({ message: 'Which day?', requestedSchema });
    return { content: [{ type: 'text', text: `${room} on ${content?.day}` }] };
  });
  return server;
}

const VERSIONS = {
  'has no such tool': () => {
    const server = new McpServer({ name: 'booking', version: '1' });
    server.registerTool('other', {}, () => ({ content: [] }));
    return server;
  },
  'wants another argument': () => {
    const server = new McpServer({ name: 'booking', version: '1' });
    const inputSchema = { room: z.string(), floor: z.number() };
    server.registerTool('book', { inputSchema }, () => ({ content: [] }));
    return server;
  },
};

/** A call of 2026-07-28. */
const read = async (served: Served): Promise<string> =>
  JSON.stringify(await request(served, 'tools/call', call));

const READS = {
  '2025-11-25': async (served: Served) => {
    const client = await connected(served, {}, () => ({ action: 'cancel' }));
    return JSON.stringify(await client.callTool(call));
  },
  '2026-07-28': read,
};

const linkOf = async (reply: Promise<string>): Promise<string> => linkIn(await reply).replace(/[\\"].*/, '');

describe('an equal call, where the tool itself fails before its question', () => {
  it('ends, and is not paid for by what was answered once', async () => {
    let isFree = true;
    const build = (): McpServer => {
      const server = new McpServer({ name: 'booking', version: '1' });
      server.registerTool('book', { inputSchema: { room: z.string() } }, async () => {
        if (!isFree) return { content: [{ type: 'text', text: 'Taken' }], isError: true };
        const { content } = await server.server.elicitInput({ message: 'Which day?', requestedSchema });
        return { content: [{ type: 'text', text: `booked on ${content?.day}` }] };
      });
      return server;
    };
    const [one, two] = await serveTwo(build);
    await ann.answer(two.url, await linkOf(read(one)), { day: 'Monday' });
    isFree = false;
    expect(await read(two)).toContain('Taken');
    isFree = true;
    expect(await read(one)).toMatch(/already done.*Taken/);
  });
});

describe('an equal call, where its tool takes another way since', () => {
  const build =
    (name?: string, message = 'Which day?') =>
    (): McpServer => {
      const server = new McpServer({ name: 'booking', version: '1' });
      server.registerTool('book', { inputSchema: { room: z.string() } }, async ({ room }) => {
        if (name !== undefined) await step(name, () => {});
        const { content } = await server.server.elicitInput({ message, requestedSchema });
        return { content: [{ type: 'text', text: `${room} on ${content?.day}` }] };
      });
      return server;
    };

  it.each(Object.entries(READS))('is a new call, as its error says: %s', async (_revision, read) => {
    let version = 0;
    const asking = (): McpServer => {
      version += 1;
      return build(undefined, `Which day? ${version}`)();
    };
    const [own, other] = await serveTwo(asking, { drift: 'fail' });
    await ann.answer(other.url, await linkOf(read(own)), { day: 'Monday' });
    expect(await read(other).catch(String)).toContain('its tool has changed; call the tool again');
    expect(await read(other)).toContain('NOT DONE YET');
  });

  it('gets its error again where steps were done, which are named', async () => {
    const [own, other] = await serveTwo(build('pay'), {}, build('charge'));
    await ann.answer(other.url, await linkOf(read(own)), { day: 'Monday' });
    for (const again of ['', '', 'already done.*'])
      expect(await read(other)).toMatch(new RegExp(`${again}Completed steps: pay`));
  });
});

it('makes its log no longer than a hundred entries, where it is refused again and again', async () => {
  const [own, other] = await serveTwo(booking, {}, VERSIONS['has no such tool']);
  await ann.answer(other.url, await linkOf(read(own)), { day: 'Monday' });
  let refusals = 0;
  while (!(await read(other)).includes('already done')) refusals += 1;
  expect(refusals).toBe(51);
});

it('is gone on with by the same request, too, where that has a token', async () => {
  const [own, other] = await serveTwo(booking, {}, VERSIONS['has no such tool']);
  const forms = { elicitation: { form: {} } };
  const asked = (await request(own, 'tools/call', call, forms)) as { result: Record<string, unknown> };
  const { requestState, inputRequests } = asked.result;
  const answer = { action: 'accept', content: { day: 'Monday' } };
  const inputResponses = Object.fromEntries(Object.keys(inputRequests as object).map((key) => [key, answer]));
  const again = async (served: Served): Promise<string> =>
    JSON.stringify(await request(served, 'tools/call', { ...call, requestState, inputResponses }, forms));
  expect(await again(other)).toContain('Tool book not found');
  expect(await again(other)).toContain('Tool book not found');
  expect(await again(own)).toContain('blue on Monday');
});

it('is a call like any other where it is refused at first', async () => {
  const logger = new LogBook();
  const [, other] = await serveTwo(booking, { logger }, VERSIONS['has no such tool']);
  expect(await read(other)).toContain('Tool book not found');
  expect(logger.text).not.toContain('stays open');
});

it.each(
  Object.entries(READS).flatMap(([revision, read]) =>
    Object.entries(VERSIONS).map(([version, build]) => ({ revision, read, version, build })),
  ),
)('on $revision, where the other $version', async ({ read, build }) => {
  paid = 0;
  const [own, other] = await serveTwo(booking, {}, build);
  const link = await linkOf(read(own));
  expect((await ann.answer(other.url, link, { day: 'Monday' })).status).toBeLessThan(400);
  for (const _ of [1, 2]) {
    const refusal = await read(other);
    expect(refusal).toContain('-32602');
    expect(refusal).not.toContain('already done');
  }
  expect(await ann.read(own.url, PAGE)).not.toContain('Which day?');
  expect(await read(own)).toContain('blue on Monday');
  expect(await read(other)).toContain('already done');
  expect(paid).toBe(1);
});
