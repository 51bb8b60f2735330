/** Servers that do otherwise on one revision, each in one way: the difference is named, and is the only one. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { type Difference, everyRevision, type Scenario, tableOf } from '../../src/compare/index.ts';
import type { FactoryContext } from '../../src/index.ts';

const ODD = '2026-07-28';
const REVISIONS = ['2025-06-18', '2025-11-25', ODD] as const;

type Ask = (field: string) => Promise<string>;

/** A server whose one tool knows whether it is on the odd revision. */
function serverWith(tool: (isOdd: boolean, ask: Ask) => Promise<string>) {
  return ({ revision }: FactoryContext): McpServer => {
    const server = new McpServer({ name: 'odd', version: '1.0.0' });
    const ask: Ask = async (field) => {
      const { content } = await server.server.elicitInput({
        message: `Your ${field}?`,
        requestedSchema: { type: 'object', properties: { [field]: { type: 'string' } }, required: [field] },
      });
      return String(content?.[field]);
    };
    server.registerTool('go', {}, async () => ({
      content: [{ type: 'text', text: await tool(revision === ODD, ask) }],
    }));
    // A tool's exception becomes a result; a prompt's stays an error.
    server.registerPrompt('go', {}, async () => ({
      messages: [{ role: 'user', content: { type: 'text', text: await tool(revision === ODD, ask) } }],
    }));
    return server;
  };
}

async function differencesOf(
  tool: (isOdd: boolean, ask: Ask) => Promise<string>,
  steps: Scenario['steps'] = [{ call: 'go' }],
): Promise<readonly Difference[]> {
  const { differences } = await everyRevision(
    serverWith(tool),
    { steps },
    { revisions: REVISIONS, callers: false },
  );
  return differences;
}

const only = (kind: Difference['kind'], text: string | RegExp) => [
  { kind, step: 0, columns: [ODD], text: typeof text === 'string' ? text : expect.stringMatching(text) },
];

describe('a difference between revisions', () => {
  it('another result', async () => {
    const found = await differencesOf(async (isOdd) => (isOdd ? 'the total is 7' : 'the total is 8'));
    expect(found).toEqual(
      only('result', 'content[0].text is "the total is 7"; on 2025-06-18 it is "the total is 8"'),
    );
  });

  it('another order of asks', async () => {
    const found = await differencesOf(async (isOdd, ask) => {
      for (const field of isOdd ? ['city', 'name'] : ['name', 'city']) await ask(field);
      return 'done';
    });
    expect(found).toEqual(
      only(
        'ask-order',
        'asks in another order: "Your city?", "Your name?"; elsewhere "Your name?", "Your city?"',
      ),
    );
  });

  it('an ask that one revision never makes', async () => {
    const found = await differencesOf(async (isOdd, ask) => {
      await ask('name');
      if (!isOdd) await ask('city');
      return 'done';
    });
    expect(found).toEqual(only('ask-missing', 'never asks "Your city?"; elsewhere it is asked'));
  });

  it('an ask that one revision makes alone', async () => {
    const found = await differencesOf(async (isOdd, ask) => (isOdd ? (await ask('name')).slice(0, 0) : ''));
    expect(found).toEqual(only('ask-extra', 'asks "Your name?"; elsewhere it is never asked'));
  });

  it("an error's code", async () => {
    const found = await differencesOf(
      async (isOdd) => {
        throw new McpError(isOdd ? ErrorCode.InvalidParams : ErrorCode.InvalidRequest, 'no');
      },
      [{ prompt: 'go', expect: {} }],
    );
    expect(found).toEqual(only('error-code', /^fails with -32602 \(.*\); 2025-06-18 with -32600$/));
  });

  it('none: ids, times, tokens and what varies by itself are aside', async () => {
    let count = 0;
    const found = await differencesOf(async () => {
      count += 1;
      return `run ${count} at ${new Date().toISOString()}: ${crypto.randomUUID()}, lot ${Math.floor(Math.random() * 1e6)}`;
    });
    expect(found).toEqual([]);
  });

  it('is in the table, in the cell of its step and revision', async () => {
    const server = serverWith(async (isOdd) => String(isOdd));
    const comparison = await everyRevision(
      server,
      { steps: [{ call: 'go' }] },
      { revisions: REVISIONS, callers: false },
    );
    expect(tableOf(comparison)).toMatch(/^1 go +\S* ?= same +\S* ?= same +≠ result$/m);
  });
});
