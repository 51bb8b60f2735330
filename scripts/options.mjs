/**
 * Writes the tables of docs/options.md out of the sources: the options of `AwaitOptions` in src/handler/options.ts, the limits of
 * `LIMITS` in src/call/limits.ts. A row's meaning is the comment, `@remarks` says when to set it, `@defaultValue` is the
 * default. With `--check` it only compares, and fails where they differ; `npm run check` does that.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import ts from 'typescript-5.9';

const PAGE = 'docs/options.md';
const SECOND = 1_000;

/** The members of a declaration, each with its comment taken apart. */
function members(path, name) {
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
  const found = source.statements
    .flatMap((one) => (ts.isVariableStatement(one) ? [...one.declarationList.declarations] : [one]))
    .find((one) => one.name?.getText() === name);
  const list = ts.isInterfaceDeclaration(found) ? found.members : found.initializer.properties;
  return list.map((member) => {
    const doc = member.jsDoc?.at(-1);
    const tag = (wanted) => doc?.tags?.find(({ tagName }) => tagName.text === wanted)?.comment;
    const text = (comment) => ts.getTextOfJSDocComment(comment)?.replaceAll(/\s+/g, ' ').trim() ?? '';
    return {
      name: member.name.getText(),
      meaning: text(doc?.comment),
      when: text(tag('remarks')),
      usual: text(tag('defaultValue')) || defaultOf(member, text(doc?.comment)),
    };
  });
}

/** A limit's default, as it is written in the source. */
function defaultOf({ name, initializer }, meaning) {
  const text = initializer?.getText().replaceAll('_', '') ?? '';
  if (text === 'Infinity') return 'never';
  const value = Number(text);
  const written = value.toLocaleString('en-US');
  if (name.getText().endsWith('Bytes')) return `${written} (${value / 1_048_576} Mi)`;
  if (!meaning.includes('in milliseconds')) return written;
  const [most, unit] = value >= 60 * SECOND ? [60 * SECOND, 'minutes'] : [SECOND, 'seconds'];
  return `${written} (${value / most} ${unit})`;
}

function table(title, rows) {
  const lines = rows.map(({ name, usual, meaning, when }) => {
    if (meaning === '' || when === '' || usual === '')
      throw new Error(`${title} ${name} needs a comment, @remarks that say when to set it, and a default`);
    return [`\`${name}\``, usual, meaning, when].map((cell) => ` ${cell.replaceAll('|', '\\|')} `).join('|');
  });
  return [` ${title} | default | meaning | when to set it `, ' --- | --- | --- | --- ', ...lines]
    .map((line) => `|${line}|`)
    .join('\n');
}

/** The page with its tables as the sources have them. */
function pageOf(page) {
  const tables = {
    option: () => members('src/handler/options.ts', 'AwaitOptions'),
    limit: () => members('src/call/limits.ts', 'LIMITS'),
  };
  return page.replaceAll(
    /^\| (option|limit) \|.*\n(?:\|.*\n)+/gm,
    (_, title) => `${table(title, tables[title]())}\n`,
  );
}

const page = readFileSync(PAGE, 'utf8');
const fresh = pageOf(page);
if (!process.argv.includes('--check')) writeFileSync(PAGE, fresh);
else if (page !== fresh) {
  process.stderr.write(`${PAGE} differs from the sources: node scripts/options.mjs writes it\n`);
  process.exitCode = 1;
}
