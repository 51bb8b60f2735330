/** `mcp-await compare` from the command line: its report on servers with known mistakes, and on one without. */
import { spawn } from 'node:child_process';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type Comparison, type Difference, everyRevision } from '../../src/compare/index.ts';
import { readScenario } from '../../src/compare/read-scenario.ts';
import { scratch } from '../e2e/harness.ts';
import late from '../fixtures/side-by-side/late-server.ts';
import restless from '../fixtures/side-by-side/restless-server.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
const FIXTURES = 'test/fixtures/side-by-side';
/** Where a claim depends neither on the revision nor on the number of processes. */
const ONE = ['--revision', '2026-07-28', '--no-callers', '--processes', '1'];

const EFFECT = `import { appendFileSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
interface Mail {
  to: string;
}

let sent: number = 0;
export default function build(): McpServer {
  const server = new McpServer({ name: 'mail', version: '1.0.0' });
  server.registerTool('mail_sync', {}, async () => {
    const mail: Mail = { to: 'ann' };
    appendFileSync('/dev/null', mail.to);
    sent += 1;
    await server.server.elicitInput({ message: 'Sure?', requestedSchema: { type: 'object', properties: {} } });
    return { content: [{ type: 'text', text: 'sent' }] };
  });
  return server;
}
`;

interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function compare(...args: readonly string[]): Promise<Ran> {
  const child = spawn(process.execPath, ['dist/src/cli/main.js', 'compare', ...args], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].on('data', (chunk: Buffer) => {
      texts[name] += chunk.toString();
    });
  }
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, ...texts })));
}

interface Report extends Pick<Comparison, 'differences' | 'problems' | 'columns'> {
  readonly exitCode: number;
}

async function reported(...args: readonly string[]): Promise<Report> {
  const { stdout, stderr } = await compare(...args, '--json');
  expect(stderr).toBe('');
  return JSON.parse(stdout) as Report;
}

function ofKind({ differences }: Pick<Report, 'differences'>, kind: Difference['kind']): Difference[] {
  return differences.filter((one) => one.kind === kind);
}

/** The processes that messages went to, by the page. */
function processesIn(page: string): string[] {
  const data = /id="comparison">(.*)<\/script>/.exec(readFileSync(page, 'utf8'))?.[1] ?? '';
  const { columns } = JSON.parse(data) as Comparison;
  const messages = columns.flatMap((column) => column.messages).filter(({ from }) => from === 'client');
  return [...new Set(messages.map((message) => message.process))].sort();
}

function scenarioFile(text: string, name = 'scenario.yaml'): string {
  const path = join(scratch(), name);
  writeFileSync(path, text);
  return path;
}

describe('mcp-await compare', () => {
  it('agrees on every revision about a server that does the same on each, and writes the scenario it made', async () => {
    const written = join(scratch(), 'made.yaml');
    const { code, stdout } = await compare(
      'examples/booking/with-steps.ts',
      '--call-all',
      '--write',
      written,
    );
    expect(stdout).toContain('All 9 columns agree');
    expect(stdout).toMatch(/2 book_flight .*\n.*3 trips/);
    expect(code).toBe(0);
    expect(readFileSync(written, 'utf8')).toContain(
      '- to: When do you want to fly to a to?\n        accept:\n          day: a day',
    );
    const again = await compare('examples/booking/with-steps.ts', '--scenario', written, ...ONE);
    expect(again.stdout).toContain('1 column agrees with itself');
    expect(again.code).toBe(0);
  });

  it('names a leak between callers', async () => {
    const few = ['--revision', '2025-11-25', '--revision', '2026-07-28'];
    const { code, stdout } = await compare(`${FIXTURES}/leaking-server.ts`, '--call-all', ...few);
    expect(stdout).toMatch(/^step +2025-11-25 +2026-07-28\n/);
    expect(stdout).toContain(
      '≠ step 2 (greet), on two callers: leaks between callers: what one caller answered is told to another',
    );
    expect(code).toBe(1);
  });

  it.each(['{"type":"module"}', '{}'])(
    'names an effect outside of a step with the line of TypeScript, in a package with %s',
    async (description) => {
      const folder = scratch();
      symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
      writeFileSync(join(folder, 'package.json'), description);
      writeFileSync(join(folder, 'effect.ts'), EFFECT);
      const scenario = scenarioFile('steps: [{ call: mail_sync }]');
      const args = ['--scenario', scenario, '--revision', '2026-07-28'];
      const { code, stdout } = await compare(join(folder, 'effect.ts'), ...args);
      expect(stdout).toContain(
        'effect: mail_sync wrote a file (effect.ts:12) outside of a step; it ran 2 times',
      );
      expect(stdout).toContain('effect: mail_sync changed the module variable sent (effect.ts:7)');
      expect(stdout).toContain('Effects that cannot be seen: ');
      expect(code).toBe(1);
    },
  );

  it('names a tool that asks in another order on replay', async () => {
    const revisions = ['2026-07-28'] as const;
    const found = await everyRevision(
      restless,
      { steps: [{ call: 'register' }] },
      { revisions, callers: false },
    );
    expect(ofKind(found, 'replay').map(({ text }) => text)).toEqual([
      expect.stringContaining('in another order on replay'),
    ]);
  });

  it('names a step that a new version renames, and what becomes of calls that wait', async () => {
    const report = await reported(`${FIXTURES}/shop-old.ts`, `${FIXTURES}/shop-new.ts`, '--call-all', ...ONE);
    expect(report.columns.map(({ name }) => name)).toContain('2026-07-28 shop-old.ts → shop-new.ts');
    expect(ofKind(report, 'steps')[0]?.text).toContain("shop-new.ts renames the step 'reserve' to 'hold'");
    expect(ofKind(report, 'upgrade')[0]).toMatchObject({ columns: ['2026-07-28'] });
    expect(ofKind(report, 'upgrade')[0]?.text).toContain("renames the step 'reserve' to 'hold'");
  });

  it('finds a tool that is registered late, without a notification', async () => {
    const steps = [{ call: 'log_in' }, { list: 'tools' as const }, { call: 'order' }];
    const found = await everyRevision(late, { steps }, { callers: false });
    expect(ofKind(found, 'listed')).toEqual([
      expect.objectContaining({ step: 1, text: expect.stringContaining('does not list tools[order]') }),
    ]);
    expect(found.differences.every(({ columns }) => columns.includes('2026-07-28'))).toBe(true);
  });

  it('plays a scenario in TypeScript, whose user is a function', async () => {
    const scenario = scenarioFile(
      `import type { Scenario } from 'mcp-await/testing';
const answers: Scenario['steps'][number] = {
  call: 'greet',
  answers: ({ question }) => ({ accept: question === 'Your name?' ? { name: 'Ann' } : { city: 'Rome' } }),
  expect: { text: 'Hello Ann of Rome', asks: ['Your name?', 'Your city?'] },
};
export default { steps: [answers] } satisfies Scenario;
`,
      'scenario.ts',
    );
    const page = join(scratch(), 'compare.html');
    const args = ['--scenario', scenario, ...ONE, '--html', page];
    const { code, stdout } = await compare(`${FIXTURES}/leaking-server.ts`, ...args);
    expect(stdout).toContain('1 column agrees with itself');
    expect(code).toBe(0);
    expect(processesIn(page)).toEqual(['A']);
  });

  it('sends POSTs to as many processes as --processes says', async () => {
    const [page, scenario] = [join(scratch(), 'compare.html'), scenarioFile('steps: [{ call: greet }]')];
    const args = ['--scenario', scenario, ...ONE, '--processes', '3', '--html', page];
    expect((await compare(`${FIXTURES}/leaking-server.ts`, ...args)).code).toBe(0);
    expect(processesIn(page)).toEqual(['A', 'B', 'C']);
    const { code, stderr } = await compare(`${FIXTURES}/leaking-server.ts`, '--processes', 'none');
    expect(stderr).toBe('mcp-await: --processes none must be a whole number from 1 to 26\n');
    expect(code).toBe(2);
  });

  describe('a scenario with a mistake', () => {
    const cases: readonly (readonly [string, string, RegExp])[] = [
      [
        'an unknown member',
        'steps:\n  - call: greet\n    anwers: []\n',
        /scenario\.yaml, line 2: steps\.0: Unrecognized key: "anwers"/,
      ],
      ['no step', 'steps: []', /line 1: steps: a scenario needs at least one step/],
      [
        'an answer in two ways',
        'steps:\n  - call: greet\n    answers:\n      - decline: true\n        accept: {}\n',
        /line 4: steps\.0\.answers/,
      ],
      ['broken YAML', 'steps:\n  - call: [', /line 2: /],
      [
        'no kind of step',
        'steps:\n  - list: tools\n  - calls: x\n',
        /line 3: steps\.1: a step is one of call, prompt, read and list/,
      ],
    ];
    it.each(cases)('%s', async (_name, text, message) => {
      await expect(readScenario(scenarioFile(text))).rejects.toThrow(message);
    });

    it('is told by the command, with exit code 2', async () => {
      const scenario = scenarioFile('steps: []');
      const { code, stderr } = await compare(`${FIXTURES}/leaking-server.ts`, '--scenario', scenario);
      expect(stderr).toMatch(
        /^mcp-await: .*scenario\.yaml, line 1: steps: a scenario needs at least one step\n$/,
      );
      expect(code).toBe(2);
    });

    it('a question without an answer, and an expectation that no revision meets', async () => {
      const scenario = scenarioFile(
        'steps:\n  - list: tools\n  - call: greet\n    answers: [{ accept: { name: Ann } }]\n    expect: { text: Goodbye }\n',
      );
      const { code, stdout } = await compare(`${FIXTURES}/leaking-server.ts`, '--scenario', scenario, ...ONE);
      expect(stdout).toContain('✗ step 2, line 3 (greet): was asked "Your city?" and has no answer for it');
      expect(stdout).toContain('- accept: {"city":"a city"}');
      expect(stdout).toContain('expected a result with "Goodbye" in it, and got "Hello Ann of undefined"');
      expect(code).toBe(2);
    });
  });

  it('says what is wrong with a module that cannot be served', async () => {
    const { code, stderr } = await compare('test/fixtures/random.ts');
    expect(stderr).toMatch(
      /test\/fixtures\/random\.ts cannot be served: the default export of .* must be a factory/,
    );
    expect(code).toBe(2);
  });

  it.each([
    ['quit', 'ended with exit code 3; its last lines of stderr:\nthe disk is full'],
    ['crash', 'Error: no such table'],
  ])('names the tool that ends its process, with its last lines: %s', async (tool, text) => {
    const scenario = scenarioFile(`steps: [{ call: look }, { call: ${tool} }]`);
    const { code, stderr } = await compare(`${FIXTURES}/ending-server.ts`, '--scenario', scenario, ...ONE);
    expect(stderr).toContain(
      `mcp-await: step 2 (${tool}), on 2026-07-28: the process of ${FIXTURES}/ending-server.ts`,
    );
    expect(stderr).toContain(text);
    expect(code).toBe(2);
  });

  it('names the tool that never lets its process go on', async () => {
    const scenario = scenarioFile('{ timeout: 500, steps: [{ call: look }, { call: stuck }] }');
    const { code, stderr } = await compare(`${FIXTURES}/ending-server.ts`, '--scenario', scenario, ...ONE);
    expect(stderr).toMatch(
      /^mcp-await: step 2 \(stuck\), on 2026-07-28: the process of .* was killed: it answered nothing for \d+ seconds/,
    );
    expect(code).toBe(2);
  });

  it('quotes the error of a module that throws while it loads', async () => {
    const path = join(scratch(), 'server.mjs');
    writeFileSync(path, "console.log('starting');\nthrow new Error('DATABASE_URL is not set');\n");
    const { code, stdout } = await compare(path, '--json');
    expect(JSON.parse(stdout)).toEqual({
      exitCode: 2,
      error: `${path} cannot be loaded: Error: DATABASE_URL is not set\n    at ${pathToFileURL(path)}:2:7`,
    });
    expect(code).toBe(2);
  });

  it('says that a server does not load, with its last lines, and prints JSON all the same', async () => {
    const { code, stdout } = await compare(`${FIXTURES}/hanging-server.ts`, '--json');
    const { exitCode, error } = JSON.parse(stdout) as { exitCode: number; error: string };
    expect(error).toMatch(/cannot be served: it has not loaded after \d+ seconds/);
    expect(error).toContain('waiting for the database');
    expect([code, exitCode]).toEqual([2, 2]);
  });

  it('says that a server does not answer, where its factory never returns', async () => {
    const hanging = (): Promise<never> => new Promise(() => {});
    await expect(
      everyRevision(hanging, { steps: [{ list: 'tools' }] }, { revisions: ['2026-07-28'] }),
    ).rejects.toThrow('no client can connect on 2026-07-28: its server has not answered after 10 seconds');
  });

  it('calls only tools that are marked readOnlyHint, names the others, and prints nothing but JSON', async () => {
    const scenario = scenarioFile(
      "console.log('loading');\nexport default { steps: [{ call: 'look' }] };\n",
      'scenario.ts',
    );
    const server = `${FIXTURES}/ending-server.ts`;
    const made = await compare(server, ...ONE, '--json');
    const report = JSON.parse(made.stdout) as Report & { uncalled: string[] };
    expect(report.columns[0]?.steps.map(({ title }) => title)).toEqual(['list tools', 'look', 'list tools']);
    expect(report.uncalled).toEqual(['quit', 'crash', 'stuck', 'slow', 'refuse', 'add']);
    const { stdout } = await compare(server, ...ONE);
    expect(stdout).toContain(
      'Not called, since not marked readOnlyHint: quit, crash, stuck, slow, refuse, add.',
    );
    const given = await compare(server, '--scenario', scenario, ...ONE, '--json');
    expect((JSON.parse(given.stdout) as Report).exitCode).toBe(0);
    expect(given.stderr).toContain('loading');
  });

  it('records a transcript, and names what a later version does otherwise', async () => {
    const path = join(scratch(), 'transcript.json');
    const args = ['--scenario', scenarioFile('steps: [{ call: order }]'), '--record', path, ...ONE];
    expect((await compare(`${FIXTURES}/shop-old.ts`, ...args)).code).toBe(0);
    const against = ['--against', path, '--no-callers', '--processes', '1'];
    expect((await compare(`${FIXTURES}/shop-old.ts`, ...against)).stdout).toContain(
      '1 column agrees with itself',
    );
    const report = await reported(`${FIXTURES}/shop-new.ts`, ...against);
    expect(report.exitCode).toBe(1);
    expect(ofKind(report, 'steps')).toEqual([
      expect.objectContaining({
        text: expect.stringContaining("shop-new.ts renames the step 'reserve' to 'hold'"),
      }),
    ]);
  });
});
