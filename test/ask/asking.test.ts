/** A person answers on the page, on each revision and store: with real SDK clients that cannot be asked. */
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { CreateMessageResult } from '@modelcontextprotocol/sdk/types.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { AskEvent } from '../../src/ask/options.ts';
import { AwaitClientTransport } from '../../src/client/index.ts';
import { step } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { STORES } from '../e2e/services.ts';
import { SHORT, some } from '../short.ts';
import { askOptions, linkIn, PersonAtPage } from './person.ts';

const AUDIENCE = `asking ${Date.now()}`;
const FORM = {
  type: 'object' as const,
  properties: {
    day: { type: 'string' as const, title: 'Day' },
    seats: { type: 'integer' as const, minimum: 1 },
  },
  required: ['day'],
};
const effects: string[] = [];
const events: AskEvent[] = [];
let poems = 0;

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  const said = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  const ask = (message: string) => server.server.elicitInput({ message, requestedSchema: FORM });
  server.registerTool('book', { inputSchema: { to: z.string() } }, async ({ to }) => {
    if (server.server.getClientCapabilities()?.elicitation === undefined) return said('its own way');
    await step('hold', async () => void effects.push(`hold ${to}`));
    const when = await ask(`When to ${to}?`);
    if (when.action !== 'accept') return said(`not booked: ${when.action}`);
    await step('pay', async () => void effects.push(`pay ${to}`));
    return said(`booked ${to} on ${when.content?.day} for ${typeof when.content?.seats}`);
  });
  server.registerTool('twice', { inputSchema: { to: z.string() } }, async ({ to }) => {
    const [one, two] = [await ask(`One, ${to}?`), await ask(`Two, ${to}?`)];
    return said(`${one.content?.day} ${two.content?.day}`);
  });
  server.registerTool('poet', { inputSchema: { to: z.string() } }, async ({ to }) => {
    const [poem, when] = await Promise.all([
      server.server.createMessage({ messages: [], maxTokens: 9, systemPrompt: to }),
      ask(`A poem for ${to}?`),
    ]);
    return said(`${(poem.content as { text?: string }).text} ${when.content?.day}`);
  });
  server.registerTool('plain', { inputSchema: { to: z.string() } }, async ({ to }) => said(`plain ${to}`));
  return server;
}

const options = {
  audience: AUDIENCE,
  secrets: [SECRET],
  ask: {
    ...askOptions,
    on: (event: AskEvent) => void events.push(event),
  },
};

interface Asker {
  call(name: string, to: string): Promise<{ text: string; isError: boolean; meta: Record<string, unknown> }>;
  close(): Promise<void>;
}

const DRAFTS = ['DRAFT-SEP-1858', 'DRAFT-SEP-2322', 'DRAFT-MRTR-2026-02'] as const;
type Draft = (typeof DRAFTS)[number];
type Kind = 'v1 2025-11-25' | 'v1 2024-11-05' | 'v2 2026-07-28' | Draft;
const KINDS: readonly Kind[] = ['v1 2025-11-25', 'v1 2024-11-05', 'v2 2026-07-28', ...(SHORT ? [] : DRAFTS)];
const isDraft = (kind: Kind): kind is Draft => kind.startsWith('DRAFT');

async function open(
  kind: Kind,
  url: string,
  capabilities: object = {},
  who = 'ann',
  name = 'host',
): Promise<Asker> {
  const requestInit = { headers: { authorization: `Bearer ${who}` } };
  const client =
    kind === 'v2 2026-07-28'
      ? new ModernClient(
          { name, version: '1' },
          { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } },
        )
      : new Client({ name, version: '1' }, { capabilities });
  const poem: CreateMessageResult = {
    role: 'assistant',
    model: 'm',
    content: { type: 'text', text: 'a poem' },
  };
  const poemOnce = (): CreateMessageResult => {
    poems += 1;
    return poem;
  };
  if ('sampling' in capabilities) {
    if (client instanceof Client) client.setRequestHandler(CreateMessageRequestSchema, () => poemOnce());
    else client.setRequestHandler('sampling/createMessage', () => poemOnce() as never);
  }
  if ('elicitation' in capabilities) {
    if (client instanceof Client) client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept' }));
    else client.setRequestHandler('elicitation/create', () => ({ action: 'accept' }));
  }
  const transport =
    kind === 'v2 2026-07-28'
      ? new ModernTransport(new URL(url), { requestInit })
      : kind === 'v1 2024-11-05'
        ? new SSEClientTransport(new URL(url.replace('/mcp', '/sse')), { requestInit })
        : isDraft(kind)
          ? new AwaitClientTransport(url, { revision: kind, requestInit })
          : new StreamableHTTPClientTransport(new URL(url), { requestInit });
  await client.connect(transport as Transport as never);
  if (transport instanceof AwaitClientTransport) expect(transport.protocolVersion).toBe(kind);
  return {
    async call(tool, to) {
      const result = await client.callTool({ name: tool, arguments: { to } }, ...([] as []));
      const {
        content,
        isError = false,
        _meta = {},
      } = result as {
        content: { text: string }[];
        isError?: boolean;
        _meta?: Record<string, unknown>;
      };
      return { text: content.map(({ text }) => text).join('\n'), isError, meta: _meta };
    },
    close: () => client.close(),
  };
}

const ann = new PersonAtPage();

describe.each(some(STORES.filter(({ down }) => !down)))('the page with $name', (service) => {
  let one: Served;
  let two: Served;
  beforeAll(async () => {
    const url = service.url();
    one = await serveHere(build, { ...options, store: await openStore(url) });
    two = await serveHere(build, { ...options, store: await openStore(url) });
  });
  afterAll(() => Promise.all([one.close(), two.close()]));

  describe.each(KINDS)('%s', (kind) => {
    const to = (name: string): string => `${name} ${kind} ${service.name}`;

    it('is where a person answers; the next equal call gets the outcome, and a later one gets it again', async () => {
      const client = await open(kind, one.url);
      const first = await client.call('book', to('rome'));
      expect(first).toMatchObject({ isError: true, meta: { 'mcp-await/waiting': { tool: 'book' } } });
      expect(first.text).toMatch(/^NOT DONE YET: book waits for a person\.\nQuestion: When to rome/);
      expect((await ann.answer(two.url, linkIn(first.text), { day: 'Monday', seats: '2' })).status).toBe(303);
      await client.close();
      const later = await open(kind, two.url);
      expect(await later.call('book', to('rome'))).toMatchObject({
        text: `booked ${to('rome')} on Monday for number`,
        isError: false,
      });
      const again = await later.call('book', to('rome'));
      expect(again.text).toMatch(/^This call was already done/);
      expect(again.text).toContain('booked');
      await later.close();
      expect(effects.filter((effect) => effect.endsWith(to('rome')))).toEqual([
        `hold ${to('rome')}`,
        `pay ${to('rome')}`,
      ]);
    });

    it('wakes a call that waits, also at the other process', async () => {
      const client = await open(kind, one.url);
      const url = linkIn((await client.call('book', to('oslo'))).text);
      const waiting = client.call('book', to('oslo'));
      await ann.answer(two.url, url, {}, 'decline');
      expect(await waiting).toMatchObject({ text: 'not booked: decline', isError: false });
      await client.close();
    });

    it('asks one question after the other', async () => {
      const client = await open(kind, one.url);
      const first = await client.call('twice', to('bern'));
      await ann.answer(one.url, linkIn(first.text), { day: 'Mon' });
      const second = await client.call('twice', to('bern'));
      expect(second.text).toContain(`Question: Two, ${to('bern')}`);
      await ann.answer(two.url, linkIn(second.text), { day: 'Tue' });
      expect((await client.call('twice', to('bern'))).text).toBe('Mon Tue');
      await client.close();
    });

    it('leaves to the client what it can be asked itself', async () => {
      const before = poems;
      const client = await open(kind, one.url, { sampling: {} });
      const first = await client.call('poet', to('lima'));
      expect(first.text).toMatch(/^NOT DONE YET/);
      await ann.answer(two.url, linkIn(first.text), { day: 'Fri' });
      expect((await client.call('poet', to('lima'))).text).toBe('a poem Fri');
      expect(poems - before).toBe(1);
      await client.close();
    });

    it('is opened by URL mode where the client has that alone', async () => {
      const client = await open(kind, one.url, { elicitation: { url: {} } });
      const waiting = client.call('book', to('cairo'));
      await expect.poll(() => events.filter(({ tool }) => tool === 'book').length).toBeGreaterThan(0);
      const url = await opened(to('cairo'));
      await ann.answer(two.url, url, { day: 'Sunday' });
      expect((await waiting).text).toBe(`booked ${to('cairo')} on Sunday for undefined`);
      await client.close();
    });

    it('is not for calls that do not ask, for anonymous callers, or for another client', async () => {
      const client = await open(kind, one.url);
      expect((await client.call('plain', to('x'))).text).toBe(`plain ${to('x')}`);
      expect((await client.call('plain', to('x'))).text).toBe(`plain ${to('x')}`);
      const first = await client.call('book', to('riga'));
      const other = await open(kind, one.url, {}, 'ann', 'another host');
      const second = await other.call('book', to('riga'));
      expect(linkIn(second.text)).not.toBe(linkIn(first.text));
      expect(effects.filter((effect) => effect === `hold ${to('riga')}`)).toHaveLength(2);
      await Promise.all([client.close(), other.close()]);
    });
  });

  /** The page of the newest ask whose question names a place. */
  async function opened(place: string): Promise<string> {
    for (;;) {
      for (const { url } of [...events].reverse()) {
        const text = await ann.read(one.url, url);
        if (text.includes(place)) return url;
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
});
