/** `--help` of each command: its common uses first. */
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import { expect, it } from 'vitest';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;

it.each(['serve', 'proxy', 'compare', 'calls'])('of %s shows how it is commonly used', (command) => {
  const { stdout, stderr, status } = spawnSync(process.execPath, [CLI, command, '--help'], {
    encoding: 'utf8',
  });
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  const uses = stdout.split('\n').filter((line) => line.trim().startsWith(`mcp-await ${command}`));
  expect(uses.length).toBeGreaterThanOrEqual(2);
});

it('of the whole names every command', () => {
  const { stdout } = spawnSync(process.execPath, [CLI, '--help'], { encoding: 'utf8' });
  for (const command of ['serve', 'proxy', 'compare', 'calls'])
    expect(stdout).toContain(`mcp-await ${command}`);
});
