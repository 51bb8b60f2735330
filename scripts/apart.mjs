// Runs tests whose packages are too large for the project's own dependencies: each folder of test/ named here has a
// package.json and a vitest.config.ts of its own. usage: node scripts/apart.mjs <folder>…
import { spawnSync } from 'node:child_process';
import process from 'node:process';

const INSTALL = [
  // Not `ci`, which refuses a lock file without the packages of other platforms.
  'install',
  '--no-save',
  '--silent',
  '--ignore-scripts',
  '--legacy-peer-deps',
  '--no-audit',
  '--no-fund',
  '--prefix',
];

for (const folder of process.argv.slice(2)) {
  const steps = [
    ['npm', [...INSTALL, `test/${folder}`]],
    [
      process.execPath,
      ['node_modules/vitest/vitest.mjs', 'run', '--config', `test/${folder}/vitest.config.ts`],
    ],
  ];
  for (const [command, args] of steps) {
    const { status } = spawnSync(command, args, { stdio: 'inherit' });
    if (status !== 0) process.exit(status ?? 1);
  }
}
