/** Each recipe of docs/recipes.md is run as it stands there, and serves two callers on both eras. */
import { afterEach, describe, expect, it } from 'vitest';
import { snippetsOf } from './pages.ts';
import { type Running, run } from './run.ts';
import { APART, twoCallers } from './two-callers.ts';

const recipes = new Map(snippetsOf('docs/recipes.md').map(({ heading, code }) => [heading, code]));
const recipe = (heading: string): string => recipes.get(heading) ?? `// no recipe ${heading}`;

/** Next.js calls the export named after the request's method; a small server does the same here. */
const ROUTE_SERVER = `
import { serve as listen } from '@hono/node-server';
const route: Record<string, (request: Request) => Promise<Response>> = { serve };
listen({ fetch: (request) => route.serve?.(request) ?? new Response(null, { status: 405 }), port: 3000 });
`;

const ON_V2 = {
  folder: 'test/docs',
  files: { 'server.ts': 'assumed/server-v2.ts', 'verifier.ts': 'assumed/verifier.ts' },
};

let running: Running | undefined;

afterEach(() => {
  running?.stop();
  running = undefined;
});

describe('a recipe', () => {
  it.each(['Express', 'SDK v1 on its own', 'Fastify', 'Koa', 'Hono', 'node:http'])(
    '%s serves two callers, each its own calls',
    async (heading) => {
      running = await run(heading, recipe(heading));
      expect(await twoCallers(running.url)).toEqual(APART);
    },
  );

  it('Express serves two callers with the bearer middleware of SDK v2', async () => {
    const code = recipe('Express').replace(
      '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js',
      '@modelcontextprotocol/express',
    );
    expect(code).toContain("from '@modelcontextprotocol/express'");
    running = await run('express-v2', code);
    expect(await twoCallers(running.url)).toEqual(APART);
  });

  it('SDK v2 on its own serves two callers, each its own calls', async () => {
    running = await run('sdk-v2', recipe('SDK v2 on its own'), ON_V2);
    expect(await twoCallers(running.url)).toEqual(APART);
  });

  it('Next.js serves two callers through what its route exports', async () => {
    const code = recipe('Next.js');
    expect(code).toContain('export { serve as DELETE, serve as GET, serve as OPTIONS, serve as POST };');
    running = await run('next', code + ROUTE_SERVER);
    expect(await twoCallers(running.url)).toEqual(APART);
  });
});
