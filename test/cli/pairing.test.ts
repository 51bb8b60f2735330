/** The pairing code: good once, for ten minutes and five tries, and only where the person sees it. */
import { createServer, type Server } from 'node:http';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Pairing } from '../../src/cli/pairing.ts';
import { LogBook, listen, shut } from '../e2e/harness.ts';
import { basicOf, cookieOf, credentialsOf } from './paired.ts';

const PAGE = new URL('http://127.0.0.1:1/ask');
const BACK = `${PAGE.href}/sealed`;
const MINUTE = 60_000;

let time: number;
let code: string;
let logger: LogBook;
let pairing: Pairing;
let server: Server;
let url: string;
const print = (shown: string): void => {
  code = shown;
};
beforeEach(async () => {
  time = 1_000_000;
  logger = new LogBook();
  pairing = new Pairing({ page: PAGE, print, logger, now: () => time });
  pairing.start();
  server = createServer((req, res) => void pairing.exchange(req, res));
  url = await listen(server);
});
afterEach(() => shut(server));

function send(typed: string, headers: Record<string, string> = {}, back = BACK): Promise<Response> {
  const body = new URLSearchParams({ code: typed, back });
  return fetch(url, {
    method: 'POST',
    redirect: 'manual',
    body,
    headers: { origin: PAGE.origin, ...headers },
  });
}

const open = (cookie = '', authorization = ''): string | Response =>
  pairing.authorize(new Request(BACK, { headers: { cookie, authorization } }), { url: BACK });

async function shown(): Promise<string> {
  const reply = open();
  return reply instanceof Response ? reply.text() : reply;
}

it('is 40 bits, and exchanged for a cookie and a password of twelve hours', async () => {
  expect(code).toMatch(/^[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$/);
  const paired = await send(code.toLowerCase().replace('-', ' '));
  const location = paired.headers.get('location');
  const basic = basicOf(location);
  expect(paired.status).toBe(303);
  expect(location?.replace(/paired:[\w-]{43}@/, '')).toBe(
    `${PAGE.href}/pair?back=${encodeURIComponent(BACK)}`,
  );
  const [line = ''] = paired.headers.getSetCookie();
  expect(line).toMatch(/; Path=\/ask; Max-Age=43200; HttpOnly; SameSite=Lax$/);
  const cookie = line.split(';')[0] ?? '';
  expect(open(`other=1; ${cookie}`, basic)).toBe('local');
  expect(open(`${cookie}x`, basic)).toBeInstanceOf(Response);
  time += 12 * 60 * MINUTE;
  expect(open(cookie, basic)).toBeInstanceOf(Response);
});

it('needs the password beside the cookie, which other ports of the host get too', async () => {
  const paired = await send(code);
  const cookie = cookieOf(paired);
  const basic = basicOf(paired.headers.get('location'));
  const refused = [
    '',
    'Basic',
    basic.slice(0, -4),
    basicOf(`http://paired:${cookie}@127.0.0.1`),
    basicOf(`http://other:x@127.0.0.1`),
  ];
  for (const authorization of refused) {
    const reply = open(cookie, authorization);
    if (!(reply instanceof Response)) throw new Error(`it took ${authorization}`);
    expect([reply.status, reply.headers.get('www-authenticate')]).toEqual([
      401,
      expect.stringMatching(/^Basic /),
    ]);
    expect(await reply.text()).toContain('has forgotten its pairing');
  }
  // The password alone is not asked for.
  expect((open('', basic) as Response).status).toBe(403);
  expect(open(cookie, basic)).toBe('local');
});

it('is not exchanged for the cookie of a server on another port', async () => {
  const [first = ''] = (await send(code)).headers.getSetCookie();
  pairing = new Pairing({ page: new URL('http://127.0.0.1:2/ask'), print, logger });
  pairing.start();
  const [second = ''] = (await send(code, { origin: 'http://127.0.0.1:2' })).headers.getSetCookie();
  const names = [first, second].map((cookie) => cookie.split('=')[0]);
  expect(names).toEqual(['mcp-await-pair-1', 'mcp-await-pair-2']);
});

it('is secure in a cookie of a page with https', async () => {
  pairing = new Pairing({
    page: new URL('https://localhost/ask'),
    print,
    logger,
  });
  pairing.start();
  const paired = await send(code, { origin: 'https://localhost' });
  expect(paired.headers.get('set-cookie')).toContain('; Secure');
});

it('is on no page and in no line of the log', async () => {
  const wrong = await (await send('AAAA-AAAA')).text();
  expect(wrong).toContain('4 tries are left');
  await send(code);
  const all = `${await shown()}${wrong}${JSON.stringify(logger)}`;
  expect(all).toContain('a pairing code was refused');
  expect(all).not.toContain(code);
  expect(all).not.toContain(code.replace('-', ''));
});

it('is not taken after five wrong ones', async () => {
  for (let nth = 0; nth < 5; nth += 1) expect((await send('AAAA-AAAA')).status).toBe(403);
  const right = await send(code);
  expect([right.status, right.headers.getSetCookie()]).toEqual([403, []]);
  expect(await shown()).toContain('No code is taken any more');
});

it('is good once', async () => {
  expect((await send(code)).status).toBe(303);
  expect((await send(code)).status).toBe(403);
});

it('is good for ten minutes', async () => {
  time += 10 * MINUTE;
  expect((await send(code)).status).toBe(403);
  expect(await shown()).toContain('No code is taken any more');
});

it('is taken from the form of the page alone, and other pages use up no tries', async () => {
  for (const headers of [{ origin: 'http://evil.example' }, { 'sec-fetch-site': 'same-site' }])
    for (let nth = 0; nth < 3; nth += 1) expect((await send('AAAA-AAAA', headers)).status).toBe(403);
  expect((await fetch(url, { method: 'PUT' })).status).toBe(405);
  expect((await send('A'.repeat(10_000))).status).toBe(413);
  expect((await send(code)).status).toBe(303);
});

it.each(['https://evil.example/ask/x', 'http://127.0.0.1:1/other', '//evil.example', ''])(
  'leads to the page, and not to %s',
  async (back) => {
    const paired = await send(code, {}, back);
    const location = paired.headers.get('location');
    const { pathname, search, searchParams } = new URL(location ?? '');
    expect([pathname, searchParams.get('back')]).toEqual(['/ask/pair', PAGE.href]);
    const credentials = credentialsOf(paired);
    const follow = (to: string, headers = {}): Promise<Response> =>
      fetch(url + to, { redirect: 'manual', headers });
    const gone = await follow(search, credentials);
    expect([gone.status, gone.headers.get('location')]).toEqual([303, PAGE.href]);
    const foreign = await follow(`?${new URLSearchParams({ back })}`, credentials);
    expect(foreign.headers.get('location')).toBe(PAGE.href);
    expect((await follow(search, { cookie: cookieOf(paired) })).status).toBe(401);
    expect((await follow(search)).status).toBe(403);
  },
);

it('is asked for by a form under the policy of the pages', async () => {
  const reply = open();
  if (!(reply instanceof Response)) throw new Error('it is not paired');
  expect(reply.headers.get('content-security-policy')).toContain("default-src 'none'");
  expect(reply.headers.get('cache-control')).toBe('no-store');
  const text = await reply.text();
  expect(text).toContain(`action="${PAGE.href}/pair"`);
  expect(text).toContain(`value="${BACK}"`);
});
