/**
 * src/call is a house of rooms: each imports only from those before it, types included, and `limits.ts` and src/base
 * may be read by all. Run by `npm run check`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import process from 'node:process';

const ROOMS = ['journal', 'frame', 'ask', 'run', 'task'];
const HOUSE = 'src/call';

const files = readdirSync(HOUSE, { recursive: true }).filter((name) => name.endsWith('.ts'));
const wrong = [];
for (const file of files) {
  const room = ROOMS.indexOf(dirname(file));
  if (room < 0) continue;
  for (const [, path] of readFileSync(join(HOUSE, file), 'utf8').matchAll(/from '(\.[^']+)'/g)) {
    const target = relative(HOUSE, join(HOUSE, dirname(file), path));
    if (target.startsWith('../base/') || target === 'limits.ts') continue;
    const other = ROOMS.indexOf(dirname(target));
    if (other < 0 || other > room) wrong.push(`${HOUSE}/${file} imports ${target}`);
  }
}
for (const line of wrong)
  process.stderr.write(`${line}: a room imports only from those before it (${ROOMS.join(', ')})\n`);
process.exit(wrong.length === 0 ? 0 : 1);
