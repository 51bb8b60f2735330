// Removes each revision from a copy, on the server's and on the client's side: the rest must compile, and every other
// revision must still ask and answer. So no revision needs another, or is named outside of its folder.
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import process from 'node:process';
import ts from 'typescript-5.9';

const ROOT = resolve(import.meta.dirname, '..');
const AT = join(ROOT, '.cache/revisions');
/** The tables that have a row for a revision. */
const TABLES = ['compat/revisions.ts', 'src/client/revisions.ts', 'src/compare/clients.ts'];
const SMOKE = 'test/compare/one-ask.ts';

/** Runs a command. Resolves to its exit code and its output. */
function run(command, args, cwd) {
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  return new Promise((done) => child.on('close', (code) => done({ code, output })));
}

/** A row's name: the key of an entry, or its `name`. */
function nameOf(node) {
  if (ts.isPropertyAssignment(node)) return ts.isStringLiteral(node.name) ? node.name.text : undefined;
  if (!ts.isObjectLiteralExpression(node)) return undefined;
  const name = node.properties.find((property) => property.name?.getText() === 'name');
  return name && ts.isPropertyAssignment(name) && ts.isStringLiteral(name.initializer)
    ? name.initializer.text
    : undefined;
}

/** @returns the text without a row, and the modules that only this row imported */
function withoutRow(path, text, revision) {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const rows = [];
  const visit = (node) => {
    if (nameOf(node) === revision) rows.push([node.getFullStart(), node.getEnd()]);
    else ts.forEachChild(node, visit);
  };
  visit(source);
  let rest = text;
  for (const [start, end] of rows.reverse()) {
    rest = rest.slice(0, start) + rest.slice(rest[end] === ',' ? end + 1 : end);
  }
  const modules = [];
  for (const statement of source.statements.filter(ts.isImportDeclaration)) {
    const line = statement.getText();
    const from = statement.moduleSpecifier.text;
    const bound = statement.importClause?.namedBindings;
    const names = bound && ts.isNamedImports(bound) ? bound.elements.map(({ name }) => name.text) : [];
    const isUsed = (name) => new RegExp(`\\b${name}\\b`).test(rest.replace(line, ''));
    if (rows.length === 0 || !from.startsWith('.') || names.some(isUsed)) continue;
    rest = rest.replace(line, '');
    modules.push(from);
  }
  return { rest, modules, isThere: rows.length > 0 };
}

/** On the server's side a revision has a folder; elsewhere it may have a file. */
function remove(copy, table, module) {
  const path = join(copy, dirname(table), module);
  const isFolder = table === 'compat/revisions.ts';
  rmSync(isFolder ? dirname(path) : path, { recursive: true });
}

async function check(revision) {
  const copy = join(AT, revision);
  rmSync(copy, { recursive: true, force: true });
  mkdirSync(copy, { recursive: true });
  for (const name of ['src', 'compat', SMOKE, 'package.json', 'tsconfig.json']) {
    cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  for (const table of TABLES) {
    const path = join(copy, table);
    const { rest, modules, isThere } = withoutRow(path, readFileSync(path, 'utf8'), revision);
    if (!isThere && table !== 'src/client/revisions.ts') return `${table} has no row for it`;
    writeFileSync(path, rest);
    for (const module of modules) remove(copy, table, module);
  }
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
  const compiled = await run(process.execPath, [tsc, '--noEmit', '-p', 'tsconfig.json'], copy);
  if (compiled.code !== 0) return `the rest does not compile:\n${compiled.output}`;
  const played = await run(process.execPath, ['--import', 'tsx', SMOKE, revision], copy);
  return played.code === 0 ? undefined : `the rest does not run:\n${played.output}`;
}

/** As the server's table names them. */
function names() {
  const text = readFileSync(join(ROOT, 'compat/revisions.ts'), 'utf8');
  return [...text.matchAll(/\bname: '([^']+)'/g)].map(([, name]) => name);
}

const waiting = names();
const total = waiting.length;
let failed = 0;
async function work() {
  for (let revision = waiting.shift(); revision !== undefined; revision = waiting.shift()) {
    const why = await check(revision);
    if (why === undefined) continue;
    failed += 1;
    process.stdout.write(`without ${revision}: ${why}\n`);
  }
}
await Promise.all(Array.from({ length: Math.min(availableParallelism(), 4) }, work));
if (failed === 0) rmSync(AT, { recursive: true, force: true });
process.stdout.write(`revisions: ${total - failed} of ${total} can be taken out, and the others go on\n`);
process.exitCode = failed === 0 ? 0 : 1;
