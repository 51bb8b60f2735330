/** `mcp-await compare` from the command line: what it says of servers with known mistakes, and of one without. */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Comparison, Difference } from '../../src/testing/index.ts';
import { scratch } from '../e2e/harness.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
const FIXTURES = 'test/fixtures/side-by-side';
const FEW = ['--revision', '2025-11-25', '--revision', '2026-07-28'];

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

function ofKind({ differences }: Report, kind: Difference['kind']): Difference[] {
  return differences.filter((one) => one.kind === kind);
}

function scenarioFile(text: string): string {
  const path = join(scratch(), 'scenario.yaml');
  writeFileSync(path, text);
  return path;
}

describe('mcp-await compare', { timeout: 120_000 }, () => {
  it('agrees on every revision about a server that does the same on each', async () => {
    const { code, stdout } = await compare('examples/booking/with-steps.ts');
    expect(stdout).toContain('All 9 columns agree');
    expect(stdout).toMatch(/2 book_flight .*\n.*3 trips/);
    expect(code).toBe(0);
  });

  it('names a leak between callers', async () => {
    const report = await reported(`${FIXTURES}/leaking-server.ts`, ...FEW);
    expect(report.exitCode).toBe(1);
    expect(ofKind(report, 'leak')[0]?.text).toMatch(
      /^leaks between callers: what one caller answered is told to another/,
    );
  });

  it('names a tool that asks in another order on replay', async () => {
    const report = await reported(`${FIXTURES}/restless-server.ts`, ...FEW);
    expect(ofKind(report, 'replay').map(({ text }) => text)).toEqual([
      expect.stringContaining('in another order on replay'),
    ]);
  });

  it('names a step that a new version renames, and what becomes of calls that wait', async () => {
    const report = await reported(`${FIXTURES}/shop-old.ts`, `${FIXTURES}/shop-new.ts`, ...FEW);
    expect(report.columns.map(({ name }) => name)).toContain('2026-07-28 shop-old.ts → shop-new.ts');
    expect(ofKind(report, 'steps')[0]?.text).toContain("shop-new.ts renames the step 'reserve' to 'hold'");
    expect(ofKind(report, 'upgrade')[0]).toMatchObject({ columns: ['2025-11-25', '2026-07-28'] });
    expect(ofKind(report, 'upgrade')[0]?.text).toContain("renames the step 'reserve' to 'hold'");
  });

  it('finds a tool that is registered late, which nobody told it of', async () => {
    const scenario = scenarioFile('steps: [{ call: log_in }, { list: tools }, { call: order }]');
    const report = await reported(`${FIXTURES}/late-server.ts`, '--scenario', scenario);
    expect(ofKind(report, 'listed')).toEqual([
      expect.objectContaining({ step: 1, text: expect.stringContaining('does not list tools[order]') }),
    ]);
    expect(report.differences.every(({ columns }) => columns.includes('2026-07-28'))).toBe(true);
  });

  it('shows a table with a row a step and a column a revision', async () => {
    const { stdout, code } = await compare(`${FIXTURES}/leaking-server.ts`, ...FEW);
    expect(stdout).toMatch(/^step +2025-11-25 +2026-07-28\n/);
    expect(stdout).toMatch(/≠ step 2 \(greet\), on two callers: leaks between callers/);
    expect(code).toBe(1);
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
      const { code, stderr } = await compare(
        `${FIXTURES}/leaking-server.ts`,
        '--scenario',
        scenarioFile(text),
      );
      expect(stderr).toMatch(message);
      expect(code).toBe(2);
    });

    it('a question without an answer, and an expectation that no revision meets', async () => {
      const scenario = scenarioFile(
        'steps:\n  - list: tools\n  - call: greet\n    answers: [{ accept: { name: Ann } }]\n    expect: { text: Goodbye }\n',
      );
      const { code, stdout } = await compare(`${FIXTURES}/leaking-server.ts`, '--scenario', scenario, ...FEW);
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

  it('writes down the scenario that it made, with its answers, and plays it again', async () => {
    const path = join(scratch(), 'made.yaml');
    await compare('examples/booking/with-steps.ts', '--write', path, ...FEW);
    expect(readFileSync(path, 'utf8')).toContain(
      '- to: When do you want to fly to a to?\n        accept:\n          day: a day',
    );
    const { code, stdout } = await compare('examples/booking/with-steps.ts', '--scenario', path, ...FEW);
    expect(stdout).toContain('All 2 columns agree');
    expect(code).toBe(0);
  });

  it('records a transcript, and names what a later version does otherwise', async () => {
    const path = join(scratch(), 'transcript.json');
    expect((await compare(`${FIXTURES}/shop-old.ts`, '--record', path, ...FEW)).code).toBe(0);
    expect((await compare(`${FIXTURES}/shop-old.ts`, '--against', path)).stdout).toContain(
      'All 2 columns agree',
    );
    const report = await reported(`${FIXTURES}/shop-new.ts`, '--against', path);
    expect(report.exitCode).toBe(1);
    expect(ofKind(report, 'steps')).toEqual([
      expect.objectContaining({
        text: expect.stringContaining("shop-new.ts renames the step 'reserve' to 'hold'"),
      }),
    ]);
  });

  it('writes XML for JUnit, a suite for each column', async () => {
    const path = join(scratch(), 'junit.xml');
    await compare(`${FIXTURES}/leaking-server.ts`, '--junit', path, ...FEW);
    const xml = readFileSync(path, 'utf8');
    expect(xml).toContain('<testsuite name="2026-07-28" tests="3" failures="0" errors="0">');
    expect(xml).toMatch(/<testcase classname="between" name="2\. two callers"><failure type="leak"/);
  });
});
