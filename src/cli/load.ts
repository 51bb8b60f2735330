/** Loads a user's module; TypeScript with `tsx`, or with the runtime itself: Bun, Deno, and Node where it strips types. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { importNamed } from '../base/peer.ts';
import { AwaitError, optionError } from '../base/values.ts';
import type { HostFactory } from '../host/host.ts';
import { userStack } from './failure.ts';

/** Files that are parsed one by one to find the one with a syntax error. */
const MOST_FILES = 200;

export async function loadFactory(path: string): Promise<HostFactory> {
  const factory = await importModule(path);
  if (typeof factory === 'function') return factory as HostFactory;
  throw optionError(`the default export of ${path} must be a factory: export default () => buildServer()`);
}

/**
 * The default export of a module.
 * @throws AwaitError `bad-option` where it cannot be loaded: with the file and the line, and nothing of Node's own
 */
export async function importModule(path: string): Promise<unknown> {
  if (!existsSync(path)) throw optionError(`there is no file ${path}`);
  const url = pathToFileURL(resolve(path)).href;
  try {
    const module = await (/\.[cm]?tsx?$/.test(path) ? importTypeScript(url) : importNamed(url));
    return defaultOf(defaultOf(module));
  } catch (error) {
    if (error instanceof AwaitError) throw error;
    throw optionError(`${path} cannot be loaded: ${reasonOf(error, url)}`, error);
  }
}

function reasonOf(error: unknown, url: string): string {
  if (!(error instanceof Error)) return String(error);
  // Of what cannot be found the message names the importing file.
  if ('code' in error && String(error.code).includes('MODULE_NOT_FOUND')) return error.message;
  const place = error instanceof SyntaxError ? syntaxErrorFrom(url) : undefined;
  return place ?? userStack(error);
}

/**
 * The place of a syntax error, which Node's loader of modules keeps to itself: the module and what it imports are
 * parsed, and not run.
 */
function syntaxErrorFrom(url: string): string | undefined {
  const urls = new Set([url]);
  for (const one of urls) {
    const file = fileURLToPath(one);
    if (urls.size > MOST_FILES || !/\.[cm]?js$/.test(file) || !existsSync(file)) continue;
    const { status, stderr } = spawnSync(process.execPath, ['--check', file], { encoding: 'utf8' });
    const [place] = stderr.split(/\n {4}at /);
    if (status !== 0 && place?.startsWith(file)) return place;
    for (const [, name = ''] of readFileSync(file, 'utf8').matchAll(
      /(?:from|import)[\s(]*['"](\.[^'"]+)['"]/g,
    ))
      urls.add(new URL(name, one).href);
  }
  return undefined;
}

/** Of a CommonJS module, which a package without `"type": "module"` makes of TypeScript, the default export is two deep. */
function defaultOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null && 'default' in value ? value.default : value;
}

/** Whether tsx transforms what this process imports. */
let isRegistered = false;

async function importTypeScript(url: string): Promise<unknown> {
  if ('Bun' in globalThis || 'Deno' in globalThis) return importNamed(url);
  try {
    // Both, since a package without `"type": "module"` is CommonJS; `tsImport` would make that one line without a map.
    const [{ register }, { register: registerCommonJs }] = await Promise.all([
      import('tsx/esm/api'),
      import('tsx/cjs/api'),
    ]);
    if (!isRegistered) {
      registerCommonJs();
      register();
    }
    isRegistered = true;
  } catch (error) {
    if ((process.features as { typescript?: unknown }).typescript) return importNamed(url);
    throw optionError('a TypeScript module needs the package tsx: npm install --save-dev tsx', error);
  }
  return importNamed(url);
}
