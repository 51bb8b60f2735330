/** A call that has ended is replayed through another instance: nothing runs that is not recorded. */
import { describe, expect, it } from 'vitest';
import { runInContext } from '../../src/call/frame/context.ts';
import { type Checkpoint, FORMAT } from '../../src/call/journal/entries.ts';
import type { Instance } from '../../src/call/ports.ts';
import { MemoryStore, pause, workbench } from './bench.ts';

type Body = Parameters<typeof workbench>[0];

const CALL: Checkpoint['call'] = {
  id: 'zzzzzzzzz.call',
  method: 'tools/call',
  params: { name: 'tool' },
  requestId: 1,
  revision: 'test',
  client: { capabilities: { elicitation: {} }, info: {}, protocolVersion: '2025-11-25' },
  created: 0,
  expires: 9e15,
};

function rehearsed(tool: (context: Parameters<Instance['call']>[0]) => Promise<unknown>, paths: string[]) {
  const store = new MemoryStore();
  const unused: Body = async () => {};
  const { engine } = workbench(unused, { store, limits: { turnWait: 150 } });
  const instance: Instance = {
    call: (frame) =>
      void runInContext(frame.context, () =>
        tool(frame).then(
          (value) => frame.finish({ result: { value } }),
          (error) => frame.finish({ error: { code: -32603, message: String(error) } }),
        ),
      ),
    refresh() {},
    cancel() {},
    release() {},
  };
  const completions = paths.map((path) => ({ kind: 'step' as const, path, outcome: { value: path } }));
  const checkpoint = { format: FORMAT, call: CALL, turn: 0, completions, open: [], asked: 0 };
  return { store, rehearsal: engine.rehearse(checkpoint, instance) };
}

describe('a rehearsal', () => {
  it('gives what is recorded again, and comes to its end', async () => {
    const effects: string[] = [];
    const { rehearsal, store } = rehearsed(
      async ({ context }) => {
        effects.push(`got ${await context.step('one', () => void effects.push('one'))}`);
        await context.shed?.();
      },
      ['one'],
    );
    expect(await rehearsal?.done).toBeUndefined();
    expect([effects, store.types()]).toEqual([['got one'], []]);
  });

  it('starts no step that is not recorded, and asks nothing', async () => {
    const effects: string[] = [];
    const step = rehearsed(async ({ context }) => {
      await context.step('one', () => void effects.push('one'));
      effects.push('went on');
    }, []);
    expect((await step.rehearsal?.done)?.code).toBe('fenced');
    const ask = rehearsed(async (frame) => {
      const params = { mode: 'form', message: 'one', requestedSchema: { type: 'object', properties: {} } };
      await frame.ask('elicitation/create', params, { inContext: true });
      effects.push('went on');
    }, []);
    expect((await ask.rehearsal?.done)?.code).toBe('fenced');
    await pause(20);
    expect([effects, step.store.types(), ask.store.types()]).toEqual([[], [], []]);
  });

  it('does not begin what the tool left undone', async () => {
    const effects: string[] = [];
    const { rehearsal } = rehearsed(async ({ context }) => {
      void context.once?.({ site: 'fetch', branch: '[]' }, async () => void effects.push('fetched'));
    }, []);
    expect(await rehearsal?.done).toBeUndefined();
    await pause(20);
    expect(effects).toEqual([]);
  });

  it('ends where its tool does not', async () => {
    const { rehearsal } = rehearsed(() => new Promise(() => {}), []);
    expect((await rehearsal?.done)?.code).toBe('limit');
  });
});
