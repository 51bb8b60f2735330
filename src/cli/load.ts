/** Loads a user's module; TypeScript with `tsx`, or with the runtime itself: Bun, Deno, and Node where it strips types. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { AwaitError } from '../base/error.ts';
import type { HostFactory } from '../host/host.ts';

export async function loadFactory(path: string): Promise<HostFactory> {
  const factory = await importModule(path);
  if (typeof factory === 'function') return factory as HostFactory;
  throw new AwaitError(
    'bad-option',
    `the default export of ${path} must be a factory that makes a server: export default () => buildServer()`,
  );
}

/** The default export of a module. */
export async function importModule(path: string): Promise<unknown> {
  if (!existsSync(path)) throw new AwaitError('bad-option', `there is no file ${path}`);
  const url = pathToFileURL(resolve(path)).href;
  const module = await (/\.[cm]?tsx?$/.test(path) ? importTypeScript(url) : import(url));
  return defaultOf(defaultOf(module));
}

/** Of a CommonJS module, which a package without `"type": "module"` makes of TypeScript, the default export is two deep. */
function defaultOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null && 'default' in value ? value.default : value;
}

/** Whether tsx transforms what this process imports. */
let isRegistered = false;

async function importTypeScript(url: string): Promise<unknown> {
  if ('Bun' in globalThis || 'Deno' in globalThis) return import(url);
  try {
    // Both, since a package without `"type": "module"` is CommonJS; `tsImport` would make that one line without a map.
    const [{ register }, { register: registerCommonJs }] = await Promise.all([
      import('tsx/esm/api'),
      import('tsx/cjs/api'),
    ]);
    if (!isRegistered) registerCommonJs();
    if (!isRegistered) register();
    isRegistered = true;
  } catch (error) {
    if ((process.features as { typescript?: unknown }).typescript) return import(url);
    throw new AwaitError(
      'bad-option',
      'a TypeScript module needs the package tsx: npm install --save-dev tsx',
      error,
    );
  }
  return import(url);
}
