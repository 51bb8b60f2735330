/** The packed package in a user's project, whose dependencies are this project's: no registry is needed. */
import { rmSync } from 'node:fs';
import process from 'node:process';
import { afterAll, describe, it } from 'vitest';
import { installInto } from './installed.ts';
import { expectImported, expectServed, expectStarted } from './package.ts';

const project = installInto('module', ['@modelcontextprotocol/sdk', 'zod']);
afterAll(() => rmSync(project, { recursive: true, force: true }));

describe('the packed package', () => {
  it('is imported from a module and required from CommonJS', () => {
    expectImported(project);
  });

  it('runs the files of docs/start.md', async () => {
    await expectStarted(project);
  });

  it('starts its command', async () => {
    await expectServed(project, [process.execPath, 'node_modules/mcp-await/dist/src/cli/main.js']);
  });
});
