/** The recipes for frameworks that are installed in a package of their own (`npm run mounts`). */
import { existsSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ROOT, snippetsOf } from '../docs/pages.ts';
import { type Running, run } from '../docs/run.ts';
import { APART, twoCallers } from '../docs/two-callers.ts';
import { balance, scratch } from '../e2e/harness.ts';

const FOLDER = 'test/frameworks';
const snippets = snippetsOf('docs/recipes.md').map(({ code }) => code);

/** Next.js calls the export named after the request's method; Node's own server does the same here. */
const ROUTE_SERVER = `
import { createServer } from 'node:http';
createServer(async (req, res) => {
  const chunks: Uint8Array[] = [];
  for await (const chunk of req) chunks.push(chunk);
  const { method = 'GET', headers, url } = req;
  const hasBody = method === 'POST';
  const response = await serve(new Request('http://' + headers.host + url, {
    method,
    headers: headers as Record<string, string>,
    ...(hasBody && { body: Buffer.concat(chunks) }),
  }));
  res.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body) for await (const chunk of response.body) res.write(chunk);
  res.end();
}).listen(3000);
`;

const VERIFIER = { 'verifier.ts': '../docs/assumed/verifier.ts' };
const OWN = { ...VERIFIER, 'server.ts': '../docs/assumed/server.ts' };

/** The first recipe that imports `from`, with changes to text that occurs in it once. */
function changed(from: string, ...changes: readonly (readonly [string, string])[]): string {
  return changes.reduce(
    (code, [text, by]) => {
      expect(code.split(text)).toHaveLength(2);
      return code.replace(text, by);
    },
    snippets.find((snippet) => snippet.includes(`from '${from}'`)) ?? '// no recipe',
  );
}

const MOUNTS = [
  { from: 'mcp-handler', files: { 'tools.ts': 'assumed/handler-tools.ts' }, after: ROUTE_SERVER },
  {
    from: '@rekog/mcp-nest',
    files: { 'greeting.controller.ts': 'assumed/greeting.controller.ts' },
    after: '',
  },
  { from: 'fastmcp', files: { 'tools.ts': 'assumed/fastmcp-tools.ts' }, after: '' },
  { from: '@mastra/mcp', files: { 'tools.ts': 'assumed/mastra-tools.ts' }, after: '' },
];

let running: Running | undefined;
const others: { close(): unknown }[] = [];

beforeAll(() => {
  const link = `${ROOT}${FOLDER}/node_modules/mcp-await`;
  if (!existsSync(link)) symlinkSync(ROOT, link);
});

afterEach(async () => {
  for (const other of others.splice(0)) await other.close();
  running?.stop();
  running = undefined;
});

describe('a recipe', () => {
  it.each(MOUNTS)('serves two callers of $from, each its own calls', async ({ from, files, after }) => {
    const code = snippets.find((snippet) => snippet.includes(`from '${from}'`)) ?? '// no recipe';
    running = await run(from, code + after, { folder: FOLDER, files: { ...files, ...VERIFIER } });
    expect(await twoCallers(running.url)).toEqual(APART);
  });

  it.each(MOUNTS)('continues calls of $from in another process', async ({ from, files, after }) => {
    process.env.STORE = join(scratch(), 'store.sqlite');
    const code = changed(from, ["from 'mcp-await';", "from './shared-handler.js';"]) + after;
    const beside = { ...files, ...VERIFIER, 'shared-handler.ts': 'assumed/shared-handler.ts' };
    const urls: string[] = [];
    for (const nth of [1, 2]) {
      const one = await run(`${from}-${nth}`, code, { folder: FOLDER, files: beside });
      others.push({ close: () => one.stop() });
      urls.push(one.url);
    }
    const balancer = await balance(urls);
    others.unshift(balancer);
    expect(await twoCallers(balancer.url)).toEqual(APART);
  });

  it('serves two callers of Express 4', async () => {
    const code = changed('express', ["from 'express'", "from 'express4'"]);
    running = await run('express4', code, { folder: FOLDER, files: OWN });
    expect(await twoCallers(running.url)).toEqual(APART);
  });

  it('serves two callers of Koa behind koa-bodyparser', async () => {
    const code = changed(
      'koa',
      ['const app = new Koa();', 'const app = new Koa().use(bodyParser());'],
      ['{ auth: ctx.state.auth }', '{ auth: ctx.state.auth, body: ctx.request.body }'],
    );
    const imported = `import bodyParser from 'koa-bodyparser';\n${code}`;
    running = await run('koa-bodyparser', imported, { folder: FOLDER, files: OWN });
    expect(await twoCallers(running.url)).toEqual(APART);
  });

  it('serves two callers of NestJS with a factory of its own', async () => {
    const files = { ...OWN, 'app.module.ts': 'assumed/app.module.ts' };
    running = await run('nestjs', changed('@nestjs/core'), { folder: FOLDER, files });
    expect(await twoCallers(running.url)).toEqual(APART);
  });
});
