/** Servers as they are published: what truly differs is found, and nothing else; the second time as the first. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { expect, it } from 'vitest';
import type { Difference } from '../../src/compare/index.ts';
import { scratch } from '../e2e/harness.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
const TWO = ['--revision', '2025-11-25', '--revision', '2026-07-28'];

function compare(...args: readonly string[]): Pick<Difference, 'kind' | 'step' | 'columns' | 'text'>[] {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['dist/src/cli/main.js', 'compare', '--json', ...args],
    {
      cwd: ROOT,
      encoding: 'utf8',
    },
  );
  expect(stderr).toBe('');
  return (JSON.parse(stdout) as { differences: Difference[] }).differences;
}

it('@modelcontextprotocol/server-everything: one of its tools needs tasks, and says so on one revision alone', () => {
  const folder = scratch();
  const [scenario, transcript] = [join(folder, 'scenario.yaml'), join(folder, 'transcript.json')];
  writeFileSync(
    scenario,
    `steps:
  - list: tools
  - call: get-roots-list
  - call: trigger-elicitation-request
  - call: trigger-sampling-request
    with: { prompt: a poem }
    answers: [{ sample: a rose }]
    expect: { text: a rose }
  - call: simulate-research-query
    with: { topic: roses }
  - list: resources
  - list: tools
`,
  );
  const server = 'test/fixtures/everything.mjs';
  const once = compare(server, '--scenario', scenario, ...TWO, '--record', transcript);
  expect(once).toEqual([
    {
      kind: 'outcome',
      step: 4,
      columns: ['2026-07-28'],
      text: 'fails with -32021 (Missing required client capability: io.modelcontextprotocol/tasks); on 2025-11-25 it completes',
    },
  ]);
  expect(compare(server, '--scenario', scenario, ...TWO, '--against', transcript)).toEqual(once);
});

it('@modelcontextprotocol/server-everything as a command: the same on both', () => {
  const scenario = join(scratch(), 'scenario.yaml');
  writeFileSync(scenario, 'steps: [{ list: tools }, { call: trigger-elicitation-request }]\n');
  const command = [
    '--',
    process.execPath,
    'node_modules/@modelcontextprotocol/server-everything/dist/index.js',
    'stdio',
  ];
  const found = compare('--scenario', scenario, '--no-callers', ...TWO, ...command);
  // It asks for roots a moment after it starts: on 2026-07-28 only a call that is in work by then can pass that on.
  expect(found.filter(({ text }) => !text.includes('never asks for roots'))).toEqual([]);
});

it('@playwright/mcp: the same on both', () => {
  const scenario = join(scratch(), 'scenario.yaml');
  writeFileSync(
    scenario,
    'steps: [{ list: tools }, { call: browser_close }, { call: browser_snapshot }, { list: tools }]\n',
  );
  expect(compare('test/fixtures/playwright.mjs', '--scenario', scenario, ...TWO)).toEqual([]);
});
