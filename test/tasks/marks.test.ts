/** The cache of tools' facts: its callers, its lifetime, and how often a server is asked. */
import { describe, expect, it } from 'vitest';
import { TASKS_META, ToolMarks } from '../../compat/tasks/marks.ts';
import type { JsonObject } from '../../src/base/values.ts';

type Instance = Parameters<ToolMarks['of']>[2];

const required = (name: string): JsonObject => ({ name, _meta: { [TASKS_META]: { support: 'required' } } });

/** A server with these tools, on pages of one tool each. */
function serverOf(...tools: JsonObject[]): Instance & { asked: number } {
  const server = {
    asked: 0,
    forbids: false,
    request: async ({ params }: { params: JsonObject }) => {
      server.asked += 1;
      const nth = Number(params.cursor ?? 0);
      const nextCursor = nth + 1 < tools.length ? { nextCursor: String(nth + 1) } : {};
      return { result: { tools: tools.slice(nth, nth + 1), ...nextCursor } };
    },
  };
  return server;
}

describe('the marks of tools', () => {
  it('are asked for once, page by page, and again when the tools changed', async () => {
    const marks = new ToolMarks();
    const server = serverOf({ name: 'plain' }, required('report'));
    expect(await marks.of('ann', 'report', server)).toMatchObject({ support: 'required' });
    expect(await marks.of('ann', 'plain', server)).toEqual({});
    expect(marks.known('ann', 'report')).toMatchObject({ support: 'required' });
    expect(server.asked).toBe(2);
    marks.forget();
    expect(marks.known('ann', 'report')).toBeUndefined();
  });

  it('are each caller’s own', async () => {
    const marks = new ToolMarks();
    expect(await marks.of('bob', 'report', serverOf({ name: 'plain' }))).toEqual({});
    expect(marks.known('ann', 'report')).toBeUndefined();
    await marks.of('ann', 'report', serverOf(required('report')));
    expect(marks.known('bob', 'report')).toBeUndefined();
    expect(marks.known(undefined, 'report')).toBeUndefined();
  });

  it('are not kept of a name that was not listed: its caller may be given the tool at any time', async () => {
    const marks = new ToolMarks();
    await marks.of('ann', 'report', serverOf({ name: 'plain' }));
    expect(marks.known('ann', 'plain')).toEqual({});
    expect(marks.known('ann', 'report')).toBeUndefined();
    expect(await marks.of('ann', 'report', serverOf(required('report')))).toMatchObject({
      support: 'required',
    });
    // What another session of the caller has is still known.
    expect(marks.known('ann', 'plain')).toEqual({});
  });

  it('are learnt from the list that a client reads, and a slow list is waited for by no call', async () => {
    const marks = new ToolMarks();
    let lists = 0;
    const slow: Instance = {
      forbids: true,
      request: () => {
        lists += 1;
        return new Promise(() => {});
      },
    };
    expect(await marks.of('ann', 'report', slow)).toEqual({});
    expect(await marks.of('ann', 'report', slow)).toEqual({});
    expect(lists).toBe(1);
    marks.learn('ann', { tools: [required('report')] }, slow);
    expect(await marks.of('ann', 'report', slow)).toMatchObject({ support: 'required' });
    expect(marks.known('bob', 'report')).toBeUndefined();
  });

  it('are forbidden where that is their author’s word, and not the default of an SDK', async () => {
    const tool = { name: 'alone', execution: { taskSupport: 'forbidden' } };
    const marks = new ToolMarks();
    expect(await marks.of('ann', 'alone', serverOf(tool))).toEqual({});
    expect(await marks.of('bob', 'alone', Object.assign(serverOf(tool), { forbids: true }))).toEqual({
      support: 'forbidden',
    });
  });

  it('that were on their way as the tools changed are not kept', async () => {
    const marks = new ToolMarks();
    let answer = (): void => {};
    const waiting = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const server: Instance = {
      forbids: false,
      request: async () => {
        await waiting;
        return { result: { tools: [required('report')] } };
      },
    };
    const asked = marks.of('ann', 'report', server);
    marks.forget();
    answer();
    expect(await asked).toMatchObject({ support: 'required' });
    expect(marks.known('ann', 'report')).toBeUndefined();
  });

  it('are known for many callers, of whom each has the same tools', async () => {
    const marks = new ToolMarks();
    const server = serverOf(required('report'));
    for (let caller = 0; caller < 1_000; caller += 1) await marks.of(`caller-${caller}`, 'report', server);
    expect(server.asked).toBe(1_000);
    for (let caller = 0; caller < 1_000; caller += 1) {
      expect(marks.known(`caller-${caller}`, 'report')).toBe(marks.known('caller-0', 'report'));
    }
  });

  it('are kept in bounded memory, the newest instead of others', () => {
    const marks = new ToolMarks();
    const server = serverOf();
    const tool = (name: string, description: string): JsonObject => ({
      name,
      inputSchema: {
        type: 'object',
        properties: { a: { type: 'string', 'x-mcp-header': 'A', description } },
      },
    });
    const names = Array.from({ length: 100 }, (_, nth) => `tool-${nth}`);
    for (const name of names) marks.learn('ann', { tools: [tool(name, 'x'.repeat(10_000))] }, server);
    const known = names.filter((name) => marks.known('ann', name) !== undefined);
    expect(known).toEqual(names.slice(-known.length));
    expect(known.length).toBeGreaterThan(20);
    expect(known.length).toBeLessThan(27);
    marks.learn('ann', { tools: [tool('long', 'x'.repeat(262_144)), tool('last', '')] }, server);
    expect(marks.known('ann', 'long')).toBeUndefined();
    expect(marks.known('ann', 'last')).toBeDefined();
    expect(marks.known('ann', 'tool-99')).toBeDefined();
  });
});
