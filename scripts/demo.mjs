// The demo of the README: the booking example under every revision, side by side. Two processes, each POST of a
// client to the other one; one table, and the page with every message. Exits 0 where all revisions agree.
import { spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';

const page = join(mkdtempSync(join(tmpdir(), 'mcp-await-demo-')), 'booking.html');
const { status } = spawnSync(
  process.execPath,
  [
    'dist/src/cli/main.js',
    'compare',
    'examples/booking/with-steps.ts',
    '--scenario',
    'examples/booking/scenario.yaml',
    '--html',
    page,
  ],
  { stdio: 'inherit' },
);
process.exitCode = status ?? 2;
