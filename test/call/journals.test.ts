/** Journals that earlier releases wrote, and that this one must go on with: one file each, kept for ever. */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { describe, expect, it } from 'vitest';
import '../../src/record/index.ts';
import { BINDING, complete, MemoryStore, requestContextOf, resultOf, type Tool, workbench } from './bench.ts';

const folder = new URL('../journals/', import.meta.url);

interface Kept {
  readonly token: string;
  readonly entries: [string, unknown][];
  readonly responses: Record<string, unknown>;
  readonly result: unknown;
}

/** The journal's tool with `mcp-await/record`, resumed in the middle of its second turn. */
const recorded: Tool = createRequire(import.meta.url)('../fixtures/recorded-tool.cjs');

/** What every other kept journal is of: never changed, or the journals are worth nothing. */
const tool: Tool = async ({ elicit, step, ask }) => {
  const [name, town] = await Promise.all([elicit('Name?'), elicit('Town?')]);
  const order = await step('order', async () => ({ id: await step('number', () => 7) }));
  const failed = await step('pay', () => Promise.reject(new RangeError('no funds'))).catch(String);
  const sure = await ask('elicitation/create', {
    _meta: { 'mcp-await/key': 'sure' },
    message: `Order ${order.id}?`,
    requestedSchema: { type: 'object', properties: { yes: { type: 'boolean' } } },
  });
  return { name, town, order, failed, sure };
};

describe('a journal of release', () => {
  it.each(readdirSync(folder))('%s is gone on with', async (file) => {
    const { token, entries, responses, result } = JSON.parse(
      readFileSync(new URL(file, folder), 'utf8'),
    ) as Kept;
    const store = new MemoryStore();
    for (const [key, entry] of entries) store.entries.set(key, JSON.stringify(entry));
    // Calls of long ago have expired; only their tokens say so, and these carry no expiry.
    const { engine } = workbench(file.endsWith('-record.json') ? recorded : tool, {
      store,
      limits: { lease: 50, turnWait: 2_000 },
    });
    const outcome = await engine.resume(token, BINDING, responses, requestContextOf());
    expect(resultOf(await complete(outcome, () => engine))).toEqual(result);
  });
});
