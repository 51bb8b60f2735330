/** The README's code is run: its server is mounted as it says, and a client books a flight. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { afterAll, describe, expect, it } from 'vitest';
import { LIMITS } from '../src/call/limits.ts';
import { OPTIONS } from '../src/handler/option-table.ts';
import { modern } from './e2e/clients.ts';
import { SECRET } from './e2e/harness.ts';
import { REDIS } from './e2e/services.ts';

const root = new URL('../', import.meta.url).pathname;
const readme = readFileSync(`${root}README.md`, 'utf8');
const snippets = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1] ?? '');
const folder = `${root}examples/booking/readme-${process.pid}`;

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the README', () => {
  it('names commands that exist', () => {
    const { scripts } = JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as {
      scripts: Record<string, string>;
    };
    for (const [, script = ''] of readme.matchAll(/npm run ([\w:]+)/g))
      expect(scripts).toHaveProperty(script);
    expect(readme).toContain('npm ci && npm run demo');
    expect(readme).toContain('npm ci && npm test');
  });

  it('is short enough to be read', () => {
    expect(readme.split('\n').length).toBeLessThanOrEqual(121);
  });

  it('leads to a page with every option and limit, and no other', () => {
    const page = readFileSync(`${root}docs/options.md`, 'utf8');
    const { status, stderr } = spawnSync(process.execPath, ['scripts/options.mjs', '--check'], { cwd: root });
    expect(stderr.toString()).toBe('');
    expect(status).toBe(0);
    const [options = [], limits = []] = page
      .split('## Limits')
      .map((part) => [...part.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name));
    expect(options.toSorted()).toEqual(Object.keys(OPTIONS).sort());
    expect(options.length).toBeLessThanOrEqual(24);
    expect(limits).toEqual(Object.keys(LIMITS));
    expect(limits.length).toBeLessThanOrEqual(20);
  });

  it('names files that exist', () => {
    for (const [, path = ''] of readme.matchAll(/\]\(([\w./-]+)\)/g)) {
      expect(() => readFileSync(`${root}${path}`), path).not.toThrow(/ENOENT/);
    }
  });

  it.skipIf(REDIS.down)(
    'mounts its server in two processes, and its client answers at the other',
    async () => {
      const code = (part: string): string => snippets.find((snippet) => snippet.includes(part)) ?? '';
      const mount = code('closeOnSignals').replace('redis://127.0.0.1:6379', REDIS.url());
      const listens = "console.log('listening')";
      expect(mount).toContain(listens);
      mkdirSync(folder, { recursive: true });
      writeFileSync(`${folder}/server.ts`, code('export default function buildServer'));
      const port = '(server.address() as { port: number }).port';
      writeFileSync(`${folder}/main.ts`, mount.replace(listens, `console.log(${port})`));
      const env = { ...process.env, PORT: '0', MCP_AWAIT_SECRET: SECRET };
      const children = [1, 2].map(() =>
        spawn(process.execPath, ['--import', 'tsx', `${folder}/main.ts`], {
          cwd: root,
          env,
          stdio: ['ignore', 'pipe', 'inherit'],
        }),
      );
      try {
        const ports = await Promise.all(
          children.map(async ({ stdout }) => String(await once(createInterface(stdout), 'line'))),
        );
        const [one = '', two = ''] = ports.map((of) => `http://127.0.0.1:${of}/mcp`);
        const client = spawn(process.execPath, ['examples/answer-elsewhere.mjs', one, two], { cwd: root });
        const said = (await client.stdout.toArray()).join('');
        expect(said).toContain(`the answer goes to ${two}`);
        expect(said).toContain('Monday is booked');
        const modernClient = await modern(two);
        expect(await modernClient.tool('book_flight', {})).toContain('is booked under');
        await modernClient.close();
      } finally {
        for (const child of children) child.kill();
      }
    },
  );
});
