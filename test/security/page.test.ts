/**
 * A page in a user's browser: it may send whatever `fetch` and an image can, to a server on the user's machine. What it
 * cannot write are `Origin`, `Sec-Fetch-Site` and the `Host` of a name that was rebound.
 */
import { createServer, request } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { AwaitOptions } from '../../src/index.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { mountWebSocket } from '../../src/websocket.ts';
import { LogBook, listen, SECRET, type Served, serveHere, shut } from '../e2e/harness.ts';
import { Reader } from '../e2e/reader.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { call, initialize, inSession } from './peer.ts';

type Headers = Readonly<Record<string, string>>;

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

let served: Served;
async function serve(options: AwaitOptions = {}): Promise<string> {
  served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], ...options });
  ends.push(() => served.close());
  return served.url.replace(/\/mcp$/, '');
}

interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Undefined for a stream, which goes on. */
  readonly body: string | undefined;
}

/** As a browser or a proxy writes it: `fetch` of Node does not send every header. */
function raw(url: string, method: string, headers: Headers, body?: object): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const req = request(url, { method, headers: { ...(body && POST), ...headers } }, (res) => {
      const { statusCode: status = 0, headers: got } = res;
      ends.push(() => void res.destroy());
      if (got['content-type'] === 'text/event-stream') resolve({ status, headers: got, body: undefined });
      else textOf(res).then((all) => resolve({ status, headers: got, body: all }), reject);
    });
    req.once('error', reject);
    req.end(body && JSON.stringify(body));
  });
}

const POST = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
const PATHS = ['/mcp', '/sse', '/mcp/acme'] as const;
const ELSEWHERE = 'https://evil.example';
const APP = 'https://app.example';

describe('a page elsewhere', () => {
  it.each(PATHS)('opens no stream at %s with a GET that carries no Origin', async (path) => {
    const root = await serve();
    for (const site of ['cross-site', 'same-site']) {
      const reply = await raw(`${root}${path}`, 'GET', {
        'sec-fetch-site': site,
        'sec-fetch-mode': 'no-cors',
      });
      expect([reply.status, reply.headers['access-control-allow-origin']]).toEqual([403, undefined]);
    }
    expect(served.handler.counters).toMatchObject({ getStreams: 0, resumedStreams: 0 });
  });

  it('is refused once in the log, which names the option, however often it comes', async () => {
    const root = await serve();
    for (let times = 0; times < 3; times += 1) await raw(`${root}/sse`, 'GET', { origin: ELSEWHERE });
    const lines = served.log.lines.filter(({ message }) => message.includes('allowedOrigins'));
    expect(lines.map(({ detail }) => detail)).toEqual([{ origin: ELSEWHERE, site: '' }]);
    for (let nth = 0; nth < 1_000; nth += 1)
      await raw(`${root}/sse`, 'GET', { origin: `https://${nth}.example` });
    expect(served.log.lines.length).toBeLessThanOrEqual(101);
  });

  it('is served where its origin is allowed, and a page of this very server always', async () => {
    const root = await serve({ allowedOrigins: [APP] });
    const own = { 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors' };
    expect((await raw(`${root}/sse`, 'GET', own)).status).toBe(200);
    const allowed = { origin: APP, 'sec-fetch-site': 'cross-site' };
    expect((await raw(`${root}/sse`, 'GET', allowed)).status).toBe(200);
    // Without Origin nothing says that it is this one.
    expect((await raw(`${root}/sse`, 'GET', { 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await raw(`${root}/sse`, 'GET', { 'sec-fetch-site': 'none' })).status).toBe(200);
  });

  it('of an allowed origin does not get the response of a web client’s request', async () => {
    const root = await serve({ allowedOrigins: [APP] });
    const agent = { 'user-agent': 'one browser' };
    const url = `${root}/mcp/acme`;
    const opened = await fetch(url, { headers: { ...agent, origin: APP, accept: 'text/event-stream' } });
    const theirs = new Reader(opened);
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} };
    const client = { ...agent, origin: root, 'sec-fetch-site': 'same-origin' };
    const own = await raw(url, 'POST', { ...client, accept: 'application/json' }, list);
    expect([own.status, JSON.parse(own.body ?? '{}').id]).toEqual([200, 1]);
    // With a stream of its own open, that is where its response goes.
    const mine = new Reader(await fetch(url, { headers: { ...agent, 'sec-fetch-site': 'same-origin' } }));
    expect((await raw(url, 'POST', client, { ...list, id: 2 })).status).toBe(202);
    await mine.next(({ id }) => id === 2);
    expect(theirs.messages.filter(({ id }) => id !== undefined)).toEqual([]);
  });
});

describe('a name that was rebound to this machine', () => {
  it.each(PATHS)('is 421 at %s, and the log names the option', async (path) => {
    const root = await serve();
    const reply = await raw(`${root}${path}`, 'GET', { host: 'evil.example' });
    expect(reply.status).toBe(421);
    expect(
      (await raw(`${root}${path}`, 'POST', { host: 'evil.example:80' }, initialize('2025-11-25'))).status,
    ).toBe(421);
    expect(served.log.text).toContain('allowedHosts');
    for (const host of ['0.0.0.0', '127.0.0.1.evil.example', 'evil.localhost.example', '[::2]']) {
      expect([host, (await raw(`${root}${path}`, 'GET', { host })).status]).toEqual([host, 421]);
    }
  });

  it('is served under the names that were given, and this machine’s own', async () => {
    const root = await serve({ allowedHosts: ['app.example'] });
    for (const host of [
      'app.example',
      'app.example:8080',
      'localhost:1',
      'x.localhost',
      '127.0.0.2',
      '[::1]:3',
    ]) {
      expect([host, (await raw(`${root}/sse`, 'GET', { host })).status]).toEqual([host, 200]);
    }
    expect((await raw(`${root}/sse`, 'GET', { host: 'evil.example' })).status).toBe(421);
    const any = await serve({ allowedHosts: ['*'] });
    expect((await raw(`${any}/sse`, 'GET', { host: 'evil.example' })).status).toBe(200);
  });

  it('is checked by handler.fetch, which sees no socket, where names were given', async () => {
    const options = { secrets: [SECRET], logger: new LogBook() };
    const open = createAwaitHandler(() => buildServer(() => {}), options);
    const closed = createAwaitHandler(() => buildServer(() => {}), {
      ...options,
      allowedHosts: ['app.example'],
    });
    ends.push(
      () => open.close(),
      () => closed.close(),
    );
    const statusOf = async (handler: typeof open, host: string): Promise<number> => {
      const asked = new Request('http://proxy/mcp', {
        headers: { host, 'mcp-protocol-version': '2026-07-28' },
      });
      return (await handler.fetch(asked)).status;
    };
    expect(await statusOf(open, 'anything.example')).toBe(405);
    expect(await statusOf(closed, 'anything.example')).toBe(421);
    expect(await statusOf(closed, 'app.example')).toBe(405);
  });
});

describe('a WebSocket', () => {
  it.each([
    ['of a page elsewhere', { origin: ELSEWHERE }, 403, 'allowedOrigins'],
    ['without Origin, of another site', { 'sec-fetch-site': 'cross-site' }, 403, 'allowedOrigins'],
    ['of another origin of this site', { 'sec-fetch-site': 'same-site' }, 403, 'allowedOrigins'],
    ['to a name that was rebound', { host: 'evil.example' }, 421, 'allowedHosts'],
  ])('%s is refused, and the log names the option', async (_what, headers, status, option) => {
    const log = new LogBook();
    const handler = createAwaitHandler(() => buildServer(() => {}), { secrets: [SECRET], logger: log });
    const server = createServer();
    const sockets = mountWebSocket(server, handler);
    const root = await listen(server);
    ends.push(async () => {
      await sockets.close();
      await handler.close();
      await shut(server);
    });
    const socket = new WebSocket(`${root.replace('http', 'ws')}/mcp`, ['mcp'], { headers });
    const got = await new Promise((resolve, reject) => {
      socket.on('unexpected-response', (_request, response) => resolve(response.statusCode));
      socket.on('open', () => reject(new Error('it was opened')));
      socket.on('error', () => {});
    });
    expect(got).toBe(status);
    expect(log.text).toContain(option);
  });
});

describe('CORS', () => {
  const asks = (origin: string): Headers => ({
    origin,
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'content-type,mcp-protocol-version,mcp-session-id',
  });

  it.each([...PATHS, '/messages'])(
    'at %s answers the preflight of an allowed origin, and of no other',
    async (path) => {
      const root = await serve({ allowedOrigins: [APP] });
      const { status, headers } = await raw(`${root}${path}`, 'OPTIONS', asks(APP));
      expect(status).toBe(204);
      expect(headers).toMatchObject({
        'access-control-allow-origin': APP,
        'access-control-allow-methods': 'GET, POST, DELETE',
        'access-control-allow-headers': 'content-type,mcp-protocol-version,mcp-session-id',
        vary: 'origin',
      });
      const refused = await raw(`${root}${path}`, 'OPTIONS', asks(ELSEWHERE));
      expect([refused.status, refused.headers['access-control-allow-origin']]).toEqual([403, undefined]);
      // An invalid header name is not allowed.
      const odd = await raw(`${root}${path}`, 'OPTIONS', {
        ...asks(APP),
        'access-control-request-headers': 'a(b',
      });
      expect(odd.headers['access-control-allow-headers']).toBeUndefined();
    },
  );

  it('lets an allowed page read replies of every wire, refusals included, and the heads that clients need', async () => {
    const root = await serve({
      allowedOrigins: [APP],
      rateLimit: { calls: { most: 1, per: 60_000 }, caller: () => 'x' },
    });
    const of = { origin: APP };
    const exposed = (reply: Reply): unknown[] => [
      reply.status,
      reply.headers['access-control-allow-origin'],
      String(reply.headers['access-control-expose-headers']).toLowerCase().split(', ').sort(),
    ];
    const heads = [
      'mcp-protocol-version',
      'mcp-session-id',
      'mcp-stream-id',
      'retry-after',
      'www-authenticate',
    ];
    const begun = await raw(`${root}/mcp`, 'POST', of, initialize('2025-11-25'));
    expect(exposed(begun)).toEqual([200, APP, heads]);
    expect(exposed(await raw(`${root}/mcp`, 'POST', of, initialize('2025-11-25')))).toEqual([
      429,
      APP,
      heads,
    ]);
    expect(exposed(await raw(`${root}/mcp/acme`, 'GET', of))).toEqual([200, APP, heads]);
    expect(exposed(await raw(`${root}/messages?sessionId=x`, 'POST', of, call(1, 'one')))[0]).toBe(429);
    const modern = await raw(`${root}/mcp`, 'GET', { ...of, 'mcp-protocol-version': '2026-07-28' });
    expect(exposed(modern)).toEqual([405, APP, heads]);
  });

  it('says nothing to a client that is no page', async () => {
    const root = await serve();
    const peer = await inSession(`${root}/mcp`, '2025-11-25');
    const { headers } = await peer.post({ jsonrpc: '2.0', id: 1, method: 'ping' });
    expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
  });
});
