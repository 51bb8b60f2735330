/** The page of an ask on the command line: behind a login's JWT, and behind a pairing code. */
import { spawn, spawnSync } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import process from 'node:process';
import { Client as ModernClient } from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { exportJWK, generateKeyPair, SignJWT, UnsecuredJWT } from 'jose';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { SignedCaller } from '../../src/cli/ask.ts';
import { AwaitWebSocketTransport } from '../../src/client/index.ts';
import { filledForm, linkIn } from '../ask/person.ts';
import {
  compiled,
  LogBook,
  listen,
  SECRET,
  type Spawned,
  scratch,
  shut,
  spawnServers,
} from '../e2e/harness.ts';
import { startProxy } from '../e2e/proxied.ts';
import { SHORT } from '../short.ts';
import { credentialsOf } from './paired.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const FIXTURE = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
const ISSUER = 'https://login.example';
const AUDIENCE = 'pages';
const CALLERS = 'mcp';

const { privateKey, publicKey } = await generateKeyPair('ES256');
const stranger = await generateKeyPair('ES256');
let keys: Server;
let jwks: string;
const clients: (Client | ModernClient)[] = [];
beforeAll(async () => {
  const jwk = { ...(await exportJWK(publicKey)), kid: 'one', alg: 'ES256' };
  keys = createServer((_req, res) => res.end(JSON.stringify({ keys: [jwk] })));
  jwks = `${new URL(await listen(keys)).origin}/jwks.json`;
});
afterAll(() => shut(keys));
afterEach(() => Promise.all(clients.splice(0).map((client) => client.close())));

interface Odd {
  readonly iss?: string;
  readonly aud?: string | string[];
  readonly exp?: string | number;
  readonly key?: CryptoKey;
}

function tokenOf(sub: string, { iss = ISSUER, aud = AUDIENCE, exp = '5m', key = privateKey }: Odd = {}) {
  return new SignJWT({})
    .setProtectedHeader({ alg: 'ES256', kid: 'one' })
    .setSubject(sub)
    .setIssuer(iss)
    .setAudience(aud)
    .setExpirationTime(exp)
    .sign(key);
}

const claims = { iss: ISSUER, aud: AUDIENCE, sub: 'ann', exp: Math.floor(Date.now() / 1_000) + 300 };
const forged: Record<string, () => string | Promise<string>> = {
  'of another issuer': () => tokenOf('ann', { iss: 'https://evil.example' }),
  'for callers and for the page': () => tokenOf('ann', { aud: [AUDIENCE, CALLERS] }),
  'for another audience': () => tokenOf('ann', { aud: 'shop' }),
  'that has expired': () => tokenOf('ann', { exp: 1_000 }),
  'signed by another key': () => tokenOf('ann', { key: stranger.privateKey }),
  'without a signature': () => new UnsecuredJWT(claims).encode(),
  'signed with HS256 and the public key': async () =>
    new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256', kid: 'one' })
      .sign(new TextEncoder().encode(JSON.stringify(await exportJWK(publicKey)))),
  'without an end': () =>
    new SignJWT({ iss: ISSUER, aud: AUDIENCE, sub: 'ann' })
      .setProtectedHeader({ alg: 'ES256', kid: 'one' })
      .sign(privateKey),
  'without a subject': () => tokenOf(''),
  'that is a bare name': () => 'ann',
  'that is empty': () => '',
};

describe('a JWT', () => {
  const loginOf = (header = 'Authorization', at = jwks): SignedCaller =>
    new SignedCaller({
      jwks: new URL(at),
      issuer: ISSUER,
      audience: AUDIENCE,
      callers: CALLERS,
      header,
      logger: new LogBook(),
    });
  const request = (headers: Record<string, string>): Request =>
    new Request('http://127.0.0.1/ask', { headers });

  it('names its subject, with and without Bearer, in the header of the login proxy alone', async () => {
    const token = await tokenOf('ann');
    expect(await loginOf().authorize(request({ authorization: `Bearer ${token}` }))).toBe('ann');
    expect(await loginOf().authorize(request({ authorization: token }))).toBe('ann');
    expect(await loginOf('X-Jwt').authorize(request({ 'x-jwt': token }))).toBe('ann');
    expect(await loginOf('X-Jwt').authorize(request({ authorization: token }))).toBeUndefined();
    expect(await loginOf().authorize(request({}))).toBeUndefined();
  });

  it('may be of a login whose clock is ahead by a few seconds, not by a minute', async () => {
    const from = (seconds: number): Promise<string> =>
      new SignJWT({ ...claims, nbf: Math.floor(Date.now() / 1_000) + seconds })
        .setProtectedHeader({ alg: 'ES256', kid: 'one' })
        .sign(privateKey);
    const login = loginOf('X-Jwt');
    expect(await login.authorize(request({ 'x-jwt': await from(3) }))).toBe('ann');
    expect(await login.authorize(request({ 'x-jwt': await from(60) }))).toBeUndefined();
  });

  it.each(Object.keys(forged))('%s is refused', async (name) => {
    const token = (await forged[name]?.()) ?? '';
    expect(await loginOf('X-Jwt').authorize(request({ 'x-jwt': token }))).toBeUndefined();
    const caller = { headers: { authorization: `Bearer ${token}` } };
    await expect(loginOf().authenticate(caller as never)).rejects.toMatchObject({ code: 'bad-token' });
  });

  it('is neither refused nor taken where the keys cannot be read', async () => {
    const away = loginOf('X-Jwt', 'http://127.0.0.1:9/jwks.json');
    await expect(away.authorize(request({ 'x-jwt': await tokenOf('ann') }))).rejects.toMatchObject({
      code: 'internal',
    });
  });

  it('is neither refused nor taken where the keys are too many to be read', async () => {
    let sent = 0;
    const many = createServer((_req, res) => {
      res.setHeader('content-type', 'application/json');
      res.write('{"keys":[{}');
      const more = (): void => {
        sent += 1;
        if (res.destroyed || sent > 4_000) res.end(']}');
        else if (res.write(',{"kty":"RSA"}'.repeat(7_000))) setImmediate(more);
        else res.once('drain', more);
      };
      more();
    });
    const login = loginOf('X-Jwt', `${new URL(await listen(many)).origin}/jwks.json`);
    const refused = login.authorize(request({ 'x-jwt': await tokenOf('ann') }));
    await expect(refused).rejects.toMatchObject({ code: 'internal' });
    many.closeAllConnections();
    await shut(many);
    // More than the sockets hold.
    expect(sent).toBeLessThan(200);
  });

  it.each([
    [500, ''],
    [200, '<html>'],
    [200, '{"keys":5}'],
  ])(
    'of an unknown key has keys that cannot be read asked for once in a second: %i %s',
    async (status, body) => {
      let asked = 0;
      const failing = createServer((_req, res) => {
        asked += 1;
        res.writeHead(status, { 'content-type': 'application/json' }).end(body);
      });
      const login = loginOf('X-Jwt', `${new URL(await listen(failing)).origin}/jwks.json`);
      const token = await tokenOf('ann');
      for (let nth = 0; nth < 200; nth += 1) {
        const refused = login.authorize(request({ 'x-jwt': token }));
        await expect(refused).rejects.toMatchObject({ code: 'internal' });
      }
      await shut(failing);
      expect(asked).toBeLessThan(20);
    },
  );
});

async function freePort(): Promise<number> {
  const server = createServer();
  const { port } = new URL(await listen(server));
  await shut(server);
  return Number(port);
}

function clientOf(url: string, token?: string): Promise<Client> {
  const requestInit = token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } };
  return connected(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as Transport);
}

async function connected(transport: Transport): Promise<Client> {
  const client = new Client({ name: 'host', version: '1' });
  await client.connect(transport);
  clients.push(client);
  return client;
}

async function call(client: Client | ModernClient): Promise<string> {
  const { content } = await client.callTool({ name: 'one', arguments: {} });
  return (content as { text: string }[])[0]?.text ?? '';
}

/** Answers as a browser does. */
async function answer(link: string, headers: Record<string, string>): Promise<Response> {
  const shown = await fetch(link, { headers });
  const body = filledForm(await shown.text(), { name: 'Ann' });
  const own = { ...headers, origin: new URL(link).origin };
  return fetch(link, { method: 'POST', body, headers: own, redirect: 'manual' });
}

describe('serve --ask-jwks', () => {
  let server: Spawned | undefined;
  let page: string;
  beforeAll(async () => {
    const port = await freePort();
    page = `http://127.0.0.1:${port}/ask`;
    const login = [
      '--ask-jwks',
      jwks,
      '--ask-issuer',
      ISSUER,
      '--ask-audience',
      AUDIENCE,
      '--ask-callers',
      CALLERS,
    ];
    const args = ['--port', String(port), '--ask-page', page, ...login, '--ask-header', 'X-Jwt'];
    [server] = await spawnServers('asking-server.ts', 1, { args });
  });
  afterAll(() => server?.kill());
  const url = (): string => server?.url ?? '';

  it('lets the person of the caller answer, and nobody else', async () => {
    const client = await clientOf(url(), await tokenOf('ann', { aud: CALLERS }));
    const told = await call(client);
    expect(told).toContain('NOT DONE YET');
    const link = linkIn(told);
    expect(link.startsWith(`${page}/`)).toBe(true);
    const bob = await fetch(link, { headers: { 'x-jwt': await tokenOf('bob') } });
    expect(bob.status).toBe(404);
    // What a host calls with does not open the page, nor the other way round.
    const own = await tokenOf('ann', { aud: CALLERS });
    expect((await fetch(link, { headers: { 'x-jwt': own } })).status).toBe(403);
    await expect(clientOf(url(), await tokenOf('ann'))).rejects.toThrow();
    for (const headers of [{}, { 'x-jwt': 'ann' }, { authorization: `Bearer ${await tokenOf('ann')}` }])
      expect((await fetch(link, { headers: headers as Record<string, string> })).status).toBe(403);
    for (const forge of Object.values(forged))
      expect((await fetch(link, { headers: { 'x-jwt': await forge() } })).status).toBe(403);
    expect((await answer(link, { 'x-jwt': await tokenOf('ann') })).status).toBe(303);
    expect(await call(client)).toContain('Hello Ann');
  });

  it('refuses a caller with a token that is not valid, and offers an anonymous one no page', async () => {
    await expect(clientOf(url(), await tokenOf('ann', { aud: 'shop' }))).rejects.toThrow();
    const headers = { authorization: `Bearer ${await tokenOf('ann', { exp: 1_000 })}` };
    const refused = await fetch(url(), { method: 'POST', headers });
    expect([refused.status, refused.headers.get('www-authenticate')]).toEqual([
      401,
      'Bearer error="invalid_token"',
    ]);
    expect(await call(await clientOf(url())).catch(String)).not.toContain('NOT DONE YET');
  });

  it('knows its callers over WebSocket as well', async () => {
    const over = (token?: string) => {
      const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
      const open = (to: string, protocol: string) => new WebSocket(to, protocol, { headers });
      return connected(
        new AwaitWebSocketTransport(url().replace('http', 'ws'), {
          open: open as never,
          reconnectionOptions: { maxRetries: 0 },
        }),
      );
    };
    const client = await over(await tokenOf('carol', { aud: CALLERS }));
    const told = await call(client);
    expect(told).toContain('NOT DONE YET');
    const link = linkIn(told);
    expect((await answer(link, { 'x-jwt': await tokenOf('bob') })).status).toBe(404);
    expect((await answer(link, { 'x-jwt': await tokenOf('carol') })).status).toBe(303);
    expect(await call(client)).toContain('Hello Ann');
    await expect(over(await tokenOf('carol', { aud: 'shop' }))).rejects.toThrow();
    expect(await call(await over()).catch(String)).not.toContain('NOT DONE YET');
  });
});

it('proxy --ask-jwks asks for a server that returns its questions, and goes on once they are answered', async () => {
  const port = await freePort();
  const page = `http://127.0.0.1:${port}/ask`;
  const login = ['--ask-jwks', jwks, '--ask-issuer', ISSUER, '--ask-audience', AUDIENCE];
  const proxy = await startProxy(
    [process.execPath, '--import', 'tsx', new URL('../fixtures/modern-server.ts', import.meta.url).pathname],
    [
      ...['--port', String(port), '--upstream', '2026-07-28', '--ask-page', page],
      ...[...login, '--ask-callers', CALLERS, '--ask-header', 'X-Jwt'],
    ],
  );
  try {
    const client = await clientOf(proxy.url, await tokenOf('ann', { aud: CALLERS }));
    const told = await call(client);
    expect(told).toContain('NOT DONE YET');
    expect((await answer(linkIn(told), { 'x-jwt': await tokenOf('ann') })).status).toBe(303);
    expect(await call(client)).toContain('Hello Ann');
  } finally {
    await proxy.stop('SIGKILL');
  }
});

/** `serve` in a pseudo-terminal, and what it wrote there. */
async function inTerminal(port: number, ...args: string[]) {
  const command = [process.execPath, CLI, 'serve', await compiled(FIXTURE), '--port', String(port)];
  const page = `http://127.0.0.1:${port}/ask`;
  const line = [...command, '--ask-page', page, '--ask-pair', '--log', 'info', ...args].join(' ');
  const child = spawn('script', ['-qefc', line, '/dev/null'], {
    env: { ...process.env, MCP_AWAIT_SECRET: SECRET },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let written = '';
  child.stdout.on('data', (chunk) => {
    written += String(chunk);
  });
  await expect.poll(() => written).toMatch(/type this code there: \S{9} /);
  const code = /there: (\S{9})/.exec(written)?.[1] ?? '';
  return { page, code, written: () => written, end: () => child.kill('SIGTERM') };
}

/** Types the code, and goes where the browser is sent. @returns what a paired browser sends from then on */
async function pair(page: string, code: string, back: string) {
  const headers = { origin: new URL(page).origin };
  const body = new URLSearchParams({ code, back });
  const paired = await fetch(`${page}/pair`, { method: 'POST', redirect: 'manual', body, headers });
  const to = new URL(paired.headers.get('location') ?? '');
  const known = credentialsOf(paired);
  Object.assign(to, { username: '', password: '' });
  const remembered = await fetch(to, { redirect: 'manual', headers: known });
  expect([paired.status, remembered.status, remembered.headers.get('location')]).toEqual([303, 303, back]);
  return known;
}

describe('serve --ask-pair', () => {
  it('in a terminal prints a code, with which its person answers', async () => {
    const { page, code, written, end } = await inTerminal(await freePort());
    try {
      const client = await clientOf(page.replace('/ask', '/mcp'));
      const link = linkIn(await call(client));
      const form = await fetch(link);
      expect([form.status, await form.text()]).toEqual([403, expect.stringContaining('Pair this browser')]);
      const paired = await pair(page, code, link);
      expect((await answer(link, paired)).status).toBe(303);
      expect(await call(client)).toContain('Hello Ann');
      expect(written().split(code)).toHaveLength(2);
    } finally {
      end();
    }
  });

  it.skipIf(SHORT).each(['2025-11-25', '2026-07-28'])(
    'serves the page of a server on stdio that has the same store, on %s',
    async (kind) => {
      const store = ['--store', `sqlite://${join(scratch(), 'calls.db')}`];
      const { page, code, end } = await inTerminal(await freePort(), ...store);
      const info = { name: 'host', version: '1' };
      const client =
        kind === '2025-11-25'
          ? new Client(info)
          : new ModernClient(info, { versionNegotiation: { mode: { pin: kind } } });
      clients.push(client);
      try {
        const own = ['--stdio', '--ask-page', page, '--ask-pair', ...store];
        const args = [CLI, 'serve', await compiled(FIXTURE), ...own];
        const env = { ...(process.env as Record<string, string>), MCP_AWAIT_SECRET: SECRET };
        const transport = new StdioClientTransport({ command: process.execPath, args, env, stderr: 'pipe' });
        let logged = '';
        transport.stderr?.on('data', (chunk) => {
          logged += String(chunk);
        });
        await client.connect(transport as never);
        const link = linkIn(await call(client));
        expect(link.startsWith(`${page}/`)).toBe(true);
        const paired = await pair(page, code, link);
        expect((await answer(link, paired)).status).toBe(303);
        expect(await call(client)).toContain('Hello Ann');
        expect(logged).not.toContain('code there');
      } finally {
        end();
      }
    },
  );
});

const LOGIN = [
  '--ask-jwks',
  'https://login.example/jwks',
  '--ask-issuer',
  ISSUER,
  '--ask-audience',
  AUDIENCE,
  '--ask-callers',
  CALLERS,
];
const LOCAL_PAGE = ['--ask-page', 'http://127.0.0.1:3000/ask'];

it.skipIf(SHORT).each([
  ['the page alone', LOCAL_PAGE, '--ask-jwks, --ask-issuer, --ask-audience, --ask-callers'],
  ['one audience for both', [...LOCAL_PAGE, ...LOGIN, '--ask-callers', AUDIENCE], 'another audience'],
  [
    'a login without an audience',
    [...LOCAL_PAGE, ...LOGIN.slice(0, 4)],
    'needs --ask-audience, --ask-callers',
  ],
  ['a login without a page', LOGIN, 'add --ask-page'],
  ['a pairing without a page', ['--ask-pair'], 'add --ask-page'],
  ['a pairing with a login', [...LOCAL_PAGE, ...LOGIN, '--ask-pair'], 'leave out --ask-jwks'],
  ['a pairing elsewhere', ['--ask-page', 'https://a.example/ask', '--ask-pair'], 'a page on this machine'],
  ['a pairing that others reach', [...LOCAL_PAGE, '--ask-pair', '--host', '0.0.0.0'], 'leave out --host'],
  ['a pairing behind a proxy', [...LOCAL_PAGE, '--ask-pair', '--forwarded'], '--forwarded'],
  ['a pairing on another port', [...LOCAL_PAGE, '--ask-pair', '--port', '3001'], 'add --port 3000'],
  [
    'a pairing at a name of several addresses',
    ['--ask-page', 'http://localhost:3000/ask', '--ask-pair'],
    'write --ask-page http://127.0.0.1:3000/ask',
  ],
  [
    'a pairing at an address that others may take',
    ['--ask-page', 'http://[::1]:3000/ask', '--ask-pair'],
    'add --host ::1',
  ],
  [
    'a pairing of stdio at a name of several addresses',
    ['--ask-page', 'http://localhost:3000/ask', '--ask-pair', '--stdio', '--store', 'memory:'],
    'localhost is also ::1',
  ],
  ['a pairing without a terminal', [...LOCAL_PAGE, '--ask-pair'], 'stderr is none'],
  ['a login on stdio', [...LOCAL_PAGE, ...LOGIN, '--stdio', '--store', 'memory:'], 'write --ask-pair'],
  ['a page of stdio without a store', [...LOCAL_PAGE, '--ask-pair', '--stdio'], 'write --store'],
  ['keys without TLS', [...LOCAL_PAGE, ...LOGIN, '--ask-jwks', 'http://a.example/jwks'], 'https'],
  ['a header that is none', [...LOCAL_PAGE, ...LOGIN, '--ask-header', 'a b'], 'name of a header'],
  ['a page without TLS', ['--ask-page', 'http://a.example/ask', ...LOGIN], 'must be https'],
  ['a page where MCP is', ['--ask-page', 'http://127.0.0.1:3000/mcp', ...LOGIN], 'another path'],
])('%s is refused with 2, and what to write', (_name, args, sentence) => {
  const env = { ...process.env, MCP_AWAIT_SECRET: SECRET };
  const run = (...command: string[]) =>
    spawnSync(process.execPath, [CLI, ...command], { encoding: 'utf8', env });
  const { stderr, status } = run('serve', 'server.ts', ...args);
  expect({ stderr, status }).toEqual({ stderr: expect.stringContaining(sentence), status: 2 });
});

it('a page without secrets is refused with 2', () => {
  const env = { ...process.env, MCP_AWAIT_SECRET: '' };
  const command = ['proxy', ...LOCAL_PAGE, ...LOGIN, '--', 'true'];
  const { stderr, status } = spawnSync(process.execPath, [CLI, ...command], { encoding: 'utf8', env });
  expect({ stderr, status }).toEqual({ stderr: expect.stringContaining('MCP_AWAIT_SECRET'), status: 2 });
});
