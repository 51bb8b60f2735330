/** Processes that end and start during a call: which differences are reported, and which are not. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it } from 'vitest';
import { NAMES as REVISIONS } from '../../compat/revisions.ts';
import { alwaysReplay, crashAt, type Scenario, tableOf } from '../../src/compare/index.ts';
import '../../src/compare/vitest.ts';
import { step } from '../../src/index.ts';
import acting from '../fixtures/side-by-side/effect-server.ts';
import restless from '../fixtures/side-by-side/restless-server.ts';
import { shop } from '../fixtures/side-by-side/shop.ts';

const ORDER: Scenario = { steps: [{ call: 'order', expect: { text: 'bought item 7' } }] };

describe('alwaysReplay', () => {
  it('finds nothing in a tool that asks the same each time, on any revision', async () => {
    const { differences, columns } = await alwaysReplay(() => shop('reserve'), ORDER);
    expect(differences).toEqual([]);
    expect(columns).toHaveLength(2 * REVISIONS.length);
    // Each call did go to a second handler.
    for (const { messages } of columns.filter(({ name }) => name.endsWith('always replayed')))
      expect(messages.filter(({ kind }) => kind === 'answer').length).toBeGreaterThan(0);
  });

  it('counts the columns that were compared, without those that they were compared with', async () => {
    const table = async (...revisions: ('2025-11-25' | '2026-07-28')[]): Promise<string> =>
      tableOf(await alwaysReplay(() => shop('reserve'), ORDER, { revisions }));
    expect(await table('2026-07-28')).toContain('\n1 column agrees with a process that lives: ');
    expect(await table('2025-11-25', '2026-07-28')).toContain(
      '\nAll 2 columns agree with a process that lives: ',
    );
  });

  it('names a tool that asks otherwise when it is run again', async () => {
    const { differences } = await alwaysReplay(
      restless,
      { steps: [{ call: 'register' }] },
      { revisions: ['2026-07-28'] },
    );
    expect(differences[0]).toMatchObject({ kind: 'replay', columns: ['2026-07-28 always replayed'] });
    expect(differences[0]?.text).toMatch(
      /^asks otherwise each time it is run: "Your name\?", "Your city\?", and then "Your city/,
    );
  });
});

describe('crashAt', () => {
  const counting = (): { readonly runs: string[]; readonly factory: () => McpServer } => {
    const runs: string[] = [];
    const factory = (): McpServer => {
      const server = new McpServer({ name: 'counting', version: '1.0.0' });
      server.registerTool('order', {}, async () => {
        const { content } = await server.server.elicitInput({
          message: 'Sure?',
          requestedSchema: { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] },
        });
        await step('charge', () => void runs.push('charge'));
        await step('ship', () => void runs.push('ship'));
        return { content: [{ type: 'text', text: `shipped: ${String(content?.yes)}` }] };
      });
      return server;
    };
    return { runs, factory };
  };

  it('runs no completed step twice where its process dies right after it', async () => {
    const { runs, factory } = counting();
    const revisions = ['2025-11-25', '2026-07-28'] as const;
    const { differences, columns } = await crashAt(
      factory,
      { step: 'charge' },
      { steps: [{ call: 'order' }] },
      { revisions },
    );
    expect(differences).toEqual([]);
    expect(columns.map(({ name }) => name)).toContain('2026-07-28 crash at step charge');
    // Two undisturbed plays and one with a crash, on each of two revisions.
    expect(runs.filter((run) => run === 'charge')).toHaveLength(6);
  });

  it('dies before the answer it is told, whose call continues elsewhere and asks nothing twice', async () => {
    const { runs, factory } = counting();
    const revisions = ['2025-11-25', '2026-07-28'] as const;
    const scenario: Scenario = { steps: [{ call: 'order', expect: { text: 'shipped: true' } }] };
    const { differences, columns } = await crashAt(factory, { ask: 1 }, scenario, { revisions });
    expect(differences).toEqual([]);
    expect(runs.filter((run) => run === 'charge')).toHaveLength(6);
    const crashed = columns.filter(({ name }) => name.endsWith('crash at ask 1'));
    expect(crashed.map(({ steps }) => steps[0]?.asks.map(({ question }) => question))).toEqual([
      ['Sure?'],
      ['Sure?'],
    ]);
    await expect(crashAt(factory, { ask: 2 }, scenario, { revisions })).rejects.toThrow(
      'crashAt: no call reaches ask 2 on 2025-11-25',
    );
  });

  it('dies after each entry in turn, and has the same result', async () => {
    const { factory } = counting();
    const { differences, columns } = await crashAt(
      factory,
      'every',
      { steps: [{ call: 'order' }] },
      { revisions: ['2025-11-25'] },
    );
    expect(differences).toEqual([]);
    expect(columns.length).toBeGreaterThan(4);
  });

  it('refuses a step that no call reaches', async () => {
    const { factory } = counting();
    const options = { revisions: ['2026-07-28'] as const };
    await expect(
      crashAt(factory, { step: 'refund' }, { steps: [{ call: 'order' }] }, options),
    ).rejects.toMatchObject({
      code: 'bad-option',
      message: 'crashAt: no call reaches step refund on 2026-07-28',
    });
  });
});

describe('toSurviveRestarts', () => {
  it('joins replays, crashes after each entry, and effects', async () => {
    const order: Scenario = { steps: [{ call: 'order', expect: { text: 'bought item 7' } }] };
    await expect(() => shop('reserve')).toSurviveRestarts(order);
    const register = { steps: [{ call: 'register' }] };
    await expect(restless).not.toSurviveRestarts(register, { revisions: ['2026-07-28'] });
    const failure = async (call: string): Promise<string> => {
      const revisions = ['2026-07-28'] as const;
      const failed: unknown = await expect(acting)
        .toSurviveRestarts({ steps: [{ call }] }, { revisions })
        .catch((error: unknown) => error);
      return failed instanceof Error ? failed.message : 'passed';
    };
    expect(await failure('mail_sync-in-step')).toBe('passed');
    // The process dies between the answer and the end of the call.
    expect(await failure('mail_sync-afterwards')).toMatch(
      /^≠ step 1 \(mail_sync-afterwards\), on 2026-07-28 crash .*: effect: mail_sync-afterwards wrote a file \(effect-server\.ts:\d+\) outside of a step; it ran 2 times in one call/,
    );
  });
});
