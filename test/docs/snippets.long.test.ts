/**
 * Every snippet of the documentation, and every `@example` of a public export, compiles in a user's project: ESM and
 * CommonJS, TypeScript 5.9 and the newest.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { publicExports } from './examples.ts';
import { installInto } from './installed.ts';
import { PAGES, ROOT, type Snippet, snippetsOf } from './pages.ts';

/** Compiled with the frameworks themselves, by `npm run mounts`. */
const ELSEWHERE = ['mcp-handler', '@nestjs/core', 'fastmcp', '@mastra/mcp'];

const exported = publicExports(ROOT);

const examples: Snippet[] = exported.flatMap(({ name, examples }) =>
  examples.map((code) => ({ page: name, heading: 'example', line: 1, code: `${code}\n`, preamble: '' })),
);

const snippets = [...PAGES.flatMap((page) => snippetsOf(page)), ...examples].filter(
  ({ code }) => !ELSEWHERE.some((name) => code.includes(`from '${name}'`)),
);

const USERS = [
  '@hono/node-server',
  '@keyv/redis',
  '@modelcontextprotocol/client',
  '@modelcontextprotocol/express',
  '@modelcontextprotocol/sdk',
  '@nats-io/transport-node',
  '@redis/client',
  '@types/express',
  '@types/koa',
  '@types/node',
  'express',
  'fastify',
  'hono',
  'koa',
  'vitest',
  'zod',
];

/** As `tsc --init` writes them. */
const OPTIONS = {
  target: 'esnext',
  module: 'nodenext',
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  isolatedModules: true,
  moduleDetection: 'force',
  skipLibCheck: true,
  types: ['node'],
  noEmit: true,
};

const projects: string[] = [];
afterAll(() => {
  for (const project of projects) rmSync(project, { recursive: true, force: true });
});

describe.each(['module', 'commonjs'] as const)('a project of type %s', (type) => {
  const project = installInto(type, USERS);
  projects.push(project);
  const names = new Map<string, Snippet>();
  for (const snippet of snippets) {
    const folder = `${snippet.page}-${snippet.line}`.replace(/[^\w-]/g, '-');
    mkdirSync(join(project, folder));
    names.set(folder, snippet);
    for (const [to, from] of Object.entries({ 'server.ts': 'server.ts', 'verifier.ts': 'verifier.ts' }))
      copyFileSync(`${ROOT}test/docs/assumed/${from}`, join(project, folder, to));
    writeFileSync(
      join(project, folder, 'snippet.ts'),
      `${snippet.preamble}\n${type === 'module' ? snippet.code : asCommonJs(snippet.code)}`,
    );
  }
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS, include: ['.'] }));

  it.each(['typescript', 'typescript-5.9'])('compiles every snippet with %s', (compiler) => {
    const tsc = `${ROOT}node_modules/${compiler}/bin/tsc`;
    const { stdout } = spawnSync(process.execPath, [tsc, '-p', project, '--pretty', 'false'], {
      cwd: project,
      encoding: 'utf8',
    });
    const errors = stdout.split('\n').map((line) =>
      line.replace(/^([\w-]+)\/snippet\.ts\((\d+)/, (found, folder, row) => {
        const snippet = names.get(folder);
        return snippet === undefined ? found : `${snippet.page}:${snippet.line + Number(row) - 2}`;
      }),
    );
    expect(errors.join('\n').trim()).toBe('');
  });
});

describe('the public exports', () => {
  it('each have a docstring', () => {
    expect(exported.length).toBeGreaterThan(50);
    expect(exported.filter(({ documentation }) => documentation === '').map(({ name }) => name)).toEqual([]);
  });

  it('each have an example, where they are functions or classes', () => {
    const bare = exported.filter(({ isValue, examples }) => isValue && examples.length === 0);
    expect(bare.map(({ name }) => name)).toEqual([]);
  });
});

/** CommonJS has no top-level await: what stands below the imports goes into a function, unless it exports. */
function asCommonJs(code: string): string {
  if (/^export /m.test(code) || !/^(?!import ).*\bawait\b/m.test(code)) return code;
  const lines = code.split('\n');
  const last = lines.findLastIndex((line) => line.startsWith('import '));
  return [
    ...lines.slice(0, last + 1),
    'async function main() {',
    ...lines.slice(last + 1),
    '}',
    'void main;',
  ].join('\n');
}
