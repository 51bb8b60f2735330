/**
 * What holds between the files of src and compat, types included. Run by `npm run check`.
 * 1. src/call is a house of rooms: each imports only from those before it, and `limits.ts` and src/base may be read by
 *    all.
 * 2. No file imports itself by way of others.
 * 3. One name, one type: few may be declared in two files.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import process from 'node:process';

const ROOMS = ['journal', 'frame', 'ask', 'run', 'task'];
const HOUSE = 'src/call';
/** Type names that are declared in more than one file. */
const TWICE = 3;

const wrong = [];
const imports = new Map();
const declared = new Map();
for (const folder of ['src', 'compat']) {
  for (const name of readdirSync(folder, { recursive: true })) {
    if (!/\.tsx?$/.test(name)) continue;
    const file = join(folder, name);
    const text = readFileSync(file, 'utf8');
    const paths = [...text.matchAll(/(?:from |import\(?\s*)'(\.[^']+)'/g)];
    imports.set(
      file,
      paths.map(([, path]) => join(dirname(file), path)),
    );
    for (const [, type] of text.matchAll(/^(?:export )?(?:abstract )?(?:interface|type|class|enum) (\w+)/gm))
      declared.set(type, (declared.get(type) ?? new Set()).add(file));
  }
}

for (const [file, targets] of imports) {
  const room = ROOMS.indexOf(relative(HOUSE, dirname(file)));
  if (room < 0) continue;
  for (const target of targets) {
    const path = relative(HOUSE, target);
    if (target.startsWith('src/base/') || path === 'limits.ts') continue;
    const other = ROOMS.indexOf(dirname(path));
    if (other < 0 || other > room)
      wrong.push(`${file} imports ${target}: a room imports only from those before it (${ROOMS.join(', ')})`);
  }
}

/** By file: 'open' while its imports are looked at. */
const seen = new Map();
function look(file, way) {
  if (seen.get(file) === 'open')
    wrong.push(`a circle: ${[...way.slice(way.indexOf(file)), file].join(' → ')}`);
  if (seen.has(file)) return;
  seen.set(file, 'open');
  for (const target of imports.get(file) ?? []) look(target, [...way, file]);
  seen.set(file, 'done');
}
for (const file of imports.keys()) look(file, []);

const twice = [...declared].filter(([, files]) => files.size > 1);
if (twice.length > TWICE)
  for (const [type, files] of twice) wrong.push(`${type} is declared in ${[...files].join(' and ')}`);

for (const line of wrong) process.stderr.write(`${line}\n`);
process.exit(wrong.length === 0 ? 0 : 1);
