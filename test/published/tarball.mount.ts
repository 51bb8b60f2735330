/** The tarball, installed by npm into an empty project as a user would. */
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, it } from 'vitest';
import { emptyProject, packInto } from '../docs/installed.ts';
import { expectImported, expectServed, expectStarted } from '../docs/package.ts';

const project = emptyProject('module');

beforeAll(() => {
  const tarball = `./${packInto(project)}`;
  const install = ['install', '--no-audit', '--no-fund', tarball, '@modelcontextprotocol/sdk', 'zod'];
  execFileSync('npm', install, { cwd: project, stdio: 'ignore' });
});
afterAll(() => rmSync(project, { recursive: true, force: true }));

describe('the installed tarball', () => {
  it('is imported from a module and required from CommonJS', () => {
    expectImported(project);
  });

  it('runs the files of docs/start.md', async () => {
    await expectStarted(project);
  });

  it('starts its command', async () => {
    await expectServed(project, ['node_modules/.bin/mcp-await']);
  });
});
