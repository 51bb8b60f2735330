/** examples/workers under workerd: sealed, and stored in a Durable Object. */
import { createRequire } from 'node:module';
import { build } from 'esbuild';
import { afterEach, describe, expect, it } from 'vitest';
import { accept, post, type RawCall, type RawReply, textOf } from '../e2e/clients.ts';
import { SECRET } from '../e2e/harness.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const { Miniflare, Log, LogLevel } = createRequire(import.meta.url)('miniflare') as {
  Miniflare: new (options: object) => { readonly ready: Promise<URL>; dispose(): Promise<void> };
  Log: new (level: number) => object;
  LogLevel: { readonly ERROR: number };
};

/** As wrangler bundles a Worker with `nodejs_compat`. */
async function bundle(entry: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [`${ROOT}examples/workers/${entry}`],
    bundle: true,
    format: 'esm',
    write: false,
    platform: 'neutral',
    mainFields: ['module', 'main'],
    conditions: ['workerd', 'worker', 'browser', 'import', 'default'],
    external: ['node:*', 'cloudflare:*'],
    logLevel: 'error',
    plugins: [
      {
        name: 'node',
        setup: ({ onResolve }) => {
          onResolve({ filter: /^(buffer|crypto|events|util|assert)$/ }, ({ path }) => ({
            path: `node:${path}`,
            external: true,
          }));
        },
      },
    ],
  });
  return outputFiles[0]?.text ?? '';
}

let worker: InstanceType<typeof Miniflare> | undefined;
const printed: string[] = [];

async function open(entry: string): Promise<string> {
  printed.length = 0;
  worker = new Miniflare({
    modules: true,
    script: await bundle(entry),
    compatibilityDate: '2026-04-01',
    compatibilityFlags: ['nodejs_compat'],
    bindings: { MCP_AWAIT_SECRET: SECRET },
    ...(entry === 'stored.ts' && { durableObjects: { CALLS: { className: 'Calls', useSQLite: true } } }),
    cf: false,
    log: new Log(LogLevel.ERROR),
    handleRuntimeStdio: (out: NodeJS.ReadableStream, err: NodeJS.ReadableStream) => {
      for (const stream of [out, err]) stream.on('data', (chunk) => printed.push(String(chunk)));
    },
  });
  return `${(await worker.ready).href}mcp`;
}

afterEach(async () => {
  await worker?.dispose();
  worker = undefined;
});

const CALL: RawCall = {
  tool: 'book_flight',
  args: { to: 'Rome' },
  capabilities: { elicitation: { form: {} } },
};
const answer = (reply: RawReply, content: Record<string, unknown>): RawCall => ({
  ...CALL,
  state: reply.state,
  responses: accept(reply.keys, content),
});

describe.each(['worker.ts', 'stored.ts'])('examples/workers/%s', (entry) => {
  it('asks twice, in three requests, and does its step once', async () => {
    const url = await open(entry);
    const first = await post(url, CALL);
    const second = await post(url, answer(first, { day: 'Monday' }));
    const asked = JSON.stringify(second.message.result?.inputRequests);
    const seat = /Seat (12A \([\w-]{4}\)) on Monday/.exec(asked)?.[1];
    expect(seat, second.text).toBeDefined();
    const third = await post(url, answer(second, { yes: true }));
    expect(textOf(third)).toBe(`Booked seat ${seat} to Rome on Monday.`);
    expect(printed.join('')).toBe('');
  });

  it('asks again for an answer that breaks the schema', async () => {
    const url = await open(entry);
    const first = await post(url, CALL);
    const again = await post(url, answer(first, { day: 7 }));
    expect(JSON.stringify(again.message.result?.inputRequests)).toContain('When do you want to fly to Rome?');
    expect(again.keys).not.toEqual(first.keys);
  });

  it('serves many calls at once', async () => {
    const url = await open(entry);
    const texts = await Promise.all(
      Array.from({ length: 10 }, async (_, at) => {
        const first = await post(url, CALL);
        const second = await post(url, answer(first, { day: `day ${at}` }));
        return textOf(await post(url, answer(second, { yes: true })));
      }),
    );
    expect(texts.map((text) => text.replace(/\(.*\)/, ''))).toEqual(
      texts.map((_, at) => `Booked seat 12A  to Rome on day ${at}.`),
    );
  });
});

it('a token that went through the Durable Object has one outcome, however often it is sent', async () => {
  const url = await open('stored.ts');
  const first = await post(url, CALL);
  const second = await post(url, answer(first, { day: 'Monday' }));
  const last = answer(second, { yes: true });
  const [one, other] = await Promise.all([post(url, last), post(url, last)]);
  expect(textOf(one)).toContain('Booked seat 12A');
  expect(textOf(other)).toBe(textOf(one));
  const changed = await post(url, answer(second, { yes: false }));
  expect(changed.message.error?.message).toBe('Invalid or expired requestState');
});
