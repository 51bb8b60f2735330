/**
 * A model: it chooses which tool is called and with what, and may fill in the answers of its user's client. What it
 * says reaches the tool's schema, its questions and the journal; it must not stall the process or be somebody else.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { post, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { answer, call, inSession } from './peer.ts';

const PATTERN = '^(a+)+$';
/** 40 characters on which the pattern would backtrack for hours. */
const STALLING = `${'a'.repeat(40)}!`;

let served: Served;
afterEach(async () => {
  vi.restoreAllMocks();
  await served.close();
});

/** Asks for a name that keeps a pattern which backtracks. */
function server(): McpServer {
  const built = new McpServer({ name: 'patterned', version: '1' });
  built.registerTool('ask', {}, async () => {
    const requestedSchema = {
      type: 'object' as const,
      properties: { name: { type: 'string' as const, pattern: PATTERN } },
      required: ['name'],
    };
    try {
      const { action, content } = await built.server.elicitInput({ message: 'name?', requestedSchema });
      return { content: [{ type: 'text', text: `${action} ${String(content?.name)}` }] };
    } catch (error) {
      return { content: [{ type: 'text', text: `refused: ${String(error)}` }] };
    }
  });
  return built;
}

async function serve(options: AwaitOptions = {}): Promise<string> {
  served = await serveHere(server, { secrets: [SECRET], ...options });
  return served.url;
}

/** Which expressions of the tool's are run by the engine that backtracks. */
function watched(): string[] {
  const run: string[] = [];
  const { exec } = RegExp.prototype;
  vi.spyOn(RegExp.prototype, 'exec').mockImplementation(function (this: RegExp, text: string) {
    if (this.source !== PATTERN) return exec.call(this, text);
    run.push(this.source);
    return null;
  });
  return run;
}

describe('an answer that a pattern of the tool would stall on', () => {
  it('is asked for again on 2026-07-28, and one that keeps it is taken', async () => {
    const url = await serve();
    const run = watched();
    const first = await post(url, { tool: 'ask' });
    const [key = ''] = first.keys;
    const bad = { [key]: { action: 'accept', content: { name: STALLING } } };
    const second = await post(url, { tool: 'ask', state: first.state, responses: bad });
    expect(second.keys).toHaveLength(1);
    const good = { [second.keys[0] ?? '']: { action: 'accept', content: { name: 'aaa' } } };
    expect(textOf(await post(url, { tool: 'ask', state: second.state, responses: good }))).toBe('accept aaa');
    expect(run).toEqual([]);
  });

  it('does not stall the SDK’s own check on 2025-11-25', async () => {
    const peer = await inSession(await serve(), '2025-11-25');
    const run = watched();
    const stream = await peer.stream(call(1, 'ask'));
    const ask = await stream.next(({ method }) => method === 'elicitation/create');
    await peer.post(answer(ask.id, { name: STALLING }));
    // Asked again, or refused by the SDK: whichever it is, it comes.
    await stream.next(({ id, method }) => id === 1 || (method === 'elicitation/create' && id !== ask.id));
    expect(run).toEqual([]);
  });
});
