/** SDK v2 servers on 2026-07-28: they are in its era, and their tools await all the same. */
import { acceptedContent, inputRequired, McpServer, type ServerContext } from '@modelcontextprotocol/server';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createAwaitHandler, type HostServer, step } from '../../src/index.ts';
import { allRounds, type Json, modernTalk, type Told } from '../differential/talk.ts';
import { CELLS, LogBook, optionsOf, SECRET } from '../e2e/harness.ts';

const form = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
};
const reply = (text: string) => ({ content: [{ type: 'text' as const, text }] });
const none = { inputSchema: z.object({}) };

let close = async (): Promise<void> => {};
afterEach(() => close());

function talkTo(factory: () => HostServer, options = {}) {
  const log = new LogBook();
  const handler = createAwaitHandler(factory, { logger: log, ...options });
  close = () => handler.close();
  const talk = modernTalk((request) => handler.fetch(request));
  const run = (name: string): Promise<{ rounds: Json[]; told: Told }> =>
    allRounds(talk, 'tools/call', { name, arguments: {} });
  return { run, log };
}

const textOf = ({ response }: Told): string => {
  const { content } = (response?.result ?? { content: [] }) as { content: { text: string }[] };
  return content[0]?.text ?? JSON.stringify(response);
};

/** One that awaits in each of the rounds that it returns. */
function doesBoth(effects: string[]): McpServer {
  const server = new McpServer({ name: 'both', version: '1.0.0' });
  const ask = async ({ mcpReq }: ServerContext, message: string): Promise<string> => {
    const { content } = await mcpReq.elicitInput({ message, requestedSchema: form });
    return `${message} ${String(content?.name)}`;
  };
  server.registerTool('both', none, async (_args, context) => {
    const { mcpReq } = context;
    const round = Number(mcpReq.requestState() ?? 0);
    effects.push(`round ${round}`);
    await step('charge', () => effects.push(`charge ${round}`));
    const awaited = await ask(context, `awaited in ${round}`);
    if (round === 2) {
      const who = acceptedContent<{ name: string }>(mcpReq.inputResponses, 'who');
      return reply(`${awaited}, returned ${who?.name}`);
    }
    return inputRequired({
      inputRequests: {
        who: inputRequired.elicit({ message: `returned in ${round}`, requestedSchema: form }),
      },
      requestState: String(round + 1),
    });
  });
  return server;
}

describe.each(CELLS)('a tool that awaits and returns inputRequired ($name)', (cell) => {
  it('does both in one call, and runs no round and no step of one twice', async () => {
    const effects: string[] = [];
    const { run } = talkTo(() => doesBoth(effects), optionsOf(cell));
    const { rounds, told } = await run('both');
    expect(textOf(told)).toBe('awaited in 2 Ann, returned Ann');
    const messages = rounds.flatMap((asks) =>
      Object.values(asks).map((ask) => ((ask as Json).params as Json).message),
    );
    expect(messages).toEqual([
      'awaited in 0',
      'returned in 0',
      'awaited in 1',
      'returned in 1',
      'awaited in 2',
    ]);
    expect(Object.keys(rounds[3] ?? {})).toEqual(['who']);
    expect(effects.filter((effect) => effect.startsWith('charge'))).toEqual([
      'charge 0',
      'charge 1',
      'charge 2',
    ]);
    // A replay leads a round that awaits through its own start, and through no round before it.
    const runs = cell.frames === 'kept' ? 1 : 2;
    for (const round of [0, 1, 2]) {
      expect(effects.filter((effect) => effect === `round ${round}`)).toHaveLength(runs);
    }
    expect(effects.lastIndexOf('round 0')).toBeLessThan(effects.indexOf('round 1'));
  });
});

describe('a server of SDK v2 on 2026-07-28', () => {
  it('that returns more of a round than a journal may hold fails its call, and nothing of it is kept', async () => {
    const kept = new Map<string, string>();
    const { run } = talkTo(
      () => {
        const server = new McpServer({ name: 'large', version: '1.0.0' });
        server.registerTool('large', none, async () =>
          inputRequired({
            inputRequests: { who: inputRequired.elicit({ message: 'who?', requestedSchema: form }) },
            requestState: 'x'.repeat(2_000_000),
          }),
        );
        return server;
      },
      { store: new Keyv({ store: kept }), secrets: [SECRET] },
    );
    const { rounds, told } = await run('large');
    expect(rounds).toEqual([]);
    expect(JSON.stringify(told.response)).toContain('"reason":"limit"');
    expect([...kept.values()].filter((record) => record.length > 100_000)).toEqual([]);
  });

  it('awaits samples, roots and URLs, which its SDK would refuse to send', async () => {
    const { run } = talkTo(() => {
      const server = new McpServer({ name: 'asks', version: '1.0.0' });
      server.registerTool('asks', none, async (_args, { mcpReq }) => {
        const { model } = await mcpReq.requestSampling({
          messages: [{ role: 'user', content: { type: 'text', text: 'a poem' } }],
          maxTokens: 10,
        });
        const { roots } = await server.server.listRoots();
        const { action } = await mcpReq.elicitInput({
          mode: 'url',
          message: 'log in',
          url: 'https://login.test/',
          elicitationId: 'e1',
        });
        await server.server.createElicitationCompletionNotifier('e1')();
        return reply(`${model} ${roots[0]?.uri} ${action} ${server.server.getNegotiatedProtocolVersion()}`);
      });
      return server;
    });
    expect(textOf((await run('asks')).told)).toBe('test file:///home/ann accept 2026-07-28');
  });

  it('still cannot ping its client, which no client of this revision answers', async () => {
    const { run } = talkTo(() => {
      const server = new McpServer({ name: 'pings', version: '1.0.0' });
      server.registerTool('pings', none, async () => {
        await server.server.ping();
        return reply('pong');
      });
      return server;
    });
    expect(textOf((await run('pings')).told)).toContain("'ping' cannot be sent");
  });

  it('is refused where its SDK has a shape that is not known, and never served in another era', async () => {
    const { run, log } = talkTo(() => {
      const server = new McpServer({ name: 'strange', version: '1.0.0' });
      Object.assign(server.server, { _servedModernEra: undefined });
      server.registerTool('acts', none, () => reply('acted'));
      return server;
    });
    const { told } = await run('acts');
    expect(JSON.stringify(told)).not.toContain('acted');
    expect(told.response?.error).toMatchObject({ code: -32603 });
    expect(log.text).toContain('it lacks _servedModernEra');
    expect(log.text).toContain('leave 2026-07-28 out of the option revisions');
  });

  it('is refused where its era does not follow what is set', async () => {
    const { run, log } = talkTo(() => {
      const server = new McpServer({ name: 'strange', version: '1.0.0' });
      Object.assign(server.server, { _servedModernEra: () => false });
      server.registerTool('acts', none, () => reply('acted'));
      return server;
    });
    expect(JSON.stringify((await run('acts')).told)).not.toContain('acted');
    expect(log.text).toContain('an era that follows _negotiatedProtocolVersion');
  });
});
