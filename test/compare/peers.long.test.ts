/** `mcp-await compare` without one of the packages it needs: one line says which to install, and the exit code is 2. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { expect, it } from 'vitest';
import { scratch } from '../e2e/harness.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
const SERVER = `
import { McpServer } from '@modelcontextprotocol/server';
export default () => {
  const server = new McpServer({ name: 'small', version: '1.0.0' });
  server.registerTool('hello', {}, () => ({ content: [{ type: 'text', text: 'hello' }] }));
  return server;
};
`;

/** The package as it is built, in a folder with every dependency but one. */
function withoutPackage(missing: string): string {
  const folder = scratch();
  cpSync(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
  const modules = join(ROOT, 'node_modules');
  const names = readdirSync(modules).flatMap((name) =>
    name.startsWith('@') ? readdirSync(join(modules, name)).map((inner) => `${name}/${inner}`) : [name],
  );
  for (const name of names.filter((one) => one !== missing)) {
    mkdirSync(dirname(join(folder, 'node_modules', name)), { recursive: true });
    symlinkSync(join(modules, name), join(folder, 'node_modules', name));
  }
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  for (const name of ['server.mjs', 'server.ts']) writeFileSync(join(folder, name), SERVER);
  writeFileSync(join(folder, 'scenario.yaml'), 'steps: [{ call: hello }]\n');
  return folder;
}

it.each([
  ['yaml', 'server.mjs', 'this needs the package yaml: npm install yaml'],
  ['zod', 'server.mjs', 'this needs the package zod: npm install zod'],
  [
    '@modelcontextprotocol/sdk',
    'server.mjs',
    'this needs the package @modelcontextprotocol/sdk: npm install @modelcontextprotocol/sdk',
  ],
  [
    '@modelcontextprotocol/client',
    'server.mjs',
    'this needs the package @modelcontextprotocol/client: npm install @modelcontextprotocol/client',
  ],
  [
    'tsx',
    'server.ts',
    'server.ts cannot be served: a TypeScript module needs the package tsx: npm install --save-dev tsx',
  ],
])('without %s', (missing, server, message) => {
  const folder = withoutPackage(missing);
  const revision = missing === '@modelcontextprotocol/client' ? '2026-07-28' : '2025-11-25';
  const args = ['compare', server, '--scenario', 'scenario.yaml', '--revision', revision, '--no-callers'];
  const { status, stderr } = spawnSync(process.execPath, [join(folder, 'dist/src/cli/main.js'), ...args], {
    cwd: folder,
    encoding: 'utf8',
  });
  expect(stderr).toBe(`mcp-await: ${message}\n`);
  expect(status).toBe(2);
});
