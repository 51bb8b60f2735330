// Compiles src/ and compat/ to dist/ with tsc and marks the command line as executable.
import { spawnSync } from 'node:child_process';
import { chmodSync, renameSync, rmSync } from 'node:fs';

// Built beside and moved, so that what runs from dist meanwhile is without it for a moment only.
const fresh = `dist.${process.pid}`;
const tsc = spawnSync(
  process.execPath,
  ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--outDir', fresh],
  {
    stdio: 'inherit',
  },
);
if (tsc.status !== 0) process.exit(tsc.status ?? 1);
chmodSync(`${fresh}/src/cli/main.js`, 0o755);
rmSync('dist', { recursive: true, force: true });
renameSync(fresh, 'dist');
