// Prints the size of the installed package and of its sources, and fails above a limit.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Bytes of the published JavaScript, which has no comments, and the indentation of its sources. */
const MOST_BYTES = 1_252_000;
/** Lines of one source file: above this a file holds more than one concern. */
const MOST_LINES = 600;

function files(folder, ending) {
  return readdirSync(folder, { recursive: true })
    .map((name) => join(folder, String(name)))
    .filter((path) => path.endsWith(ending) && statSync(path).isFile());
}

const bytes = files('dist', '.js').reduce((sum, path) => sum + statSync(path).size, 0);
const lines = ['src', 'compat']
  .flatMap((folder) => files(folder, '.ts'))
  .map((path) => ({ path, count: readFileSync(path, 'utf8').split('\n').length }))
  .sort((a, b) => b.count - a.count);
const median = lines[Math.floor(lines.length / 2)]?.count;
process.stdout.write(
  `size: ${bytes} bytes of JavaScript; ${lines.length} source files, median ${median} lines, longest ${lines[0]?.path} (${lines[0]?.count})\n`,
);
if (bytes > MOST_BYTES || (lines[0]?.count ?? 0) > MOST_LINES) process.exitCode = 1;
