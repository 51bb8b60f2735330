/** The recipes for frameworks that are installed in a package of their own (`npm run mounts`). */
import { existsSync, symlinkSync } from 'node:fs';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ROOT, snippetsOf } from '../docs/pages.ts';
import { type Running, run } from '../docs/run.ts';
import { APART, twoCallers } from '../docs/two-callers.ts';

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

beforeAll(() => {
  const link = `${ROOT}${FOLDER}/node_modules/mcp-await`;
  if (!existsSync(link)) symlinkSync(ROOT, link);
});

afterEach(() => {
  running?.stop();
  running = undefined;
});

describe('a recipe', () => {
  it.each(MOUNTS)('serves two callers of $from, each its own calls', async ({ from, files, after }) => {
    const code = snippets.find((snippet) => snippet.includes(`from '${from}'`)) ?? '// no recipe';
    const verifier = { 'verifier.ts': '../docs/assumed/verifier.ts' };
    running = await run(from, code + after, { folder: FOLDER, files: { ...files, ...verifier } });
    expect(await twoCallers(running.url)).toEqual(APART);
  });
});
