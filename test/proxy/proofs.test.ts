/** What a server says of tokens, and how long that is believed: by a real server, with the clock moved. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Proofs } from '../../src/proxy/proofs.ts';
import { ServerMetadata } from '../../src/proxy/server-metadata.ts';
import { listen, shut } from '../e2e/harness.ts';

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const close of closing.splice(0).reverse()) await close();
});

type Answer = (req: IncomingMessage, res: ServerResponse) => void;

interface Asked {
  readonly url: string;
  readonly proofs: Proofs;
  readonly metadata: ServerMetadata;
  /** Method and token of each request. */
  readonly seen: string[];
  readonly warned: string[];
  answer: Answer;
  close(): Promise<void>;
}

async function start(answer: Answer): Promise<Asked> {
  const seen: string[] = [];
  const warned: string[] = [];
  const server = createServer((req, res) => {
    seen.push(`${req.method} ${req.headers.authorization ?? 'nobody'}`);
    asked.answer(req, res);
  });
  const url = `${await listen(server)}/mcp`;
  const close = (): Promise<void> => shut(server);
  closing.push(close);
  const remote = { url, headers: { 'x-key': 'key' } };
  const proofs = new Proofs(remote, { warn: (message) => warned.push(message) });
  const asked: Asked = { url, proofs, metadata: new ServerMetadata(remote), seen, warned, answer, close };
  return asked;
}

const status =
  (code: number, headers: Record<string, string> = {}, body = ''): Answer =>
  (_req, res) =>
    void res.writeHead(code, headers).end(body);

/** Moves the monotonic clock. */
function later(milliseconds: number): void {
  const now = performance.now() + milliseconds;
  vi.spyOn(performance, 'now').mockReturnValue(now);
}

describe('a token', () => {
  it('that was accepted is asked about again after half a minute, or once it was refused', async () => {
    const { proofs, seen } = await start(status(400));
    for (let nth = 0; nth < 3; nth += 1) expect(await proofs.prove('a')).toEqual({ is: 'accepted' });
    expect(seen).toEqual(['POST Bearer a']);
    later(31_000);
    await proofs.prove('a');
    proofs.forget('a');
    await proofs.prove('a');
    expect(seen).toHaveLength(3);
  });

  it('is asked about once at a time', async () => {
    const { proofs, seen } = await start(status(401, { 'www-authenticate': 'Bearer x="y"' }));
    const all = await Promise.all(Array.from({ length: 20 }, () => proofs.prove(undefined, '192.0.2.1')));
    expect(all[19]).toMatchObject({
      is: 'refused',
      status: 401,
      headers: { 'www-authenticate': 'Bearer x="y"' },
    });
    expect(seen).toEqual(['POST nobody']);
  });

  it('that was accepted is asked about while strangers’ tokens take all of their room', async () => {
    const asked = await start(status(202));
    const { proofs, seen } = asked;
    await proofs.prove('known');
    later(31_000);
    let goOn = (): void => {};
    const gate = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    asked.answer = (req, res) =>
      void (req.headers.authorization === 'Bearer known' ? Promise.resolve() : gate).then(() =>
        res.writeHead(401).end(),
      );
    const strangers = Array.from({ length: 100 }, (_, nth) =>
      proofs.prove(`stranger-${nth}`, `192.0.2.${nth % 4}`),
    );
    expect(await proofs.prove('known')).toMatchObject({ is: 'refused' });
    goOn();
    const proofsOfAll = await Promise.all(strangers);
    expect(proofsOfAll.filter(({ is }) => is === 'refused')).toHaveLength(64);
    expect(proofsOfAll.filter(({ is }) => is === 'unknown')).toHaveLength(36);
    expect(seen.filter((request) => request.includes('stranger'))).toHaveLength(64);
  });

  it('of strangers at one address takes half of their room', async () => {
    const { proofs } = await start(status(401));
    const all = Array.from({ length: 40 }, (_, nth) => proofs.prove(`stranger-${nth}`, '192.0.2.1'));
    const elsewhere = proofs.prove('other', '192.0.2.2');
    expect((await Promise.all(all)).filter(({ is }) => is === 'unknown')).toHaveLength(8);
    expect(await elsewhere).toMatchObject({ is: 'refused' });
  });

  it('that was accepted outlasts a restart of the server for five minutes, and no other does', async () => {
    const { proofs, warned, close } = await start(status(200));
    await proofs.prove('a');
    await close();
    later(60_000);
    expect(await proofs.prove('a')).toEqual({ is: 'accepted' });
    expect(await proofs.prove('b')).toEqual({ is: 'unknown' });
    later(301_000);
    expect(await proofs.prove('a')).toEqual({ is: 'unknown' });
    expect(warned).toHaveLength(1);
  });

  it.each([429, 500, 503, 302])('of which a server says %s is unknown', async (code) => {
    const { proofs } = await start(status(code, { location: 'http://127.0.0.1:9/' }));
    expect(await proofs.prove('a')).toEqual({ is: 'unknown' });
  });

  it('goes to no other server', async () => {
    const elsewhere = await start(status(200));
    const { proofs } = await start(status(307, { location: elsewhere.url }));
    expect(await proofs.prove('a')).toEqual({ is: 'unknown' });
    expect(elsewhere.seen).toEqual([]);
  });

  it('is asked about by GET where the endpoint takes no POST', async () => {
    const { proofs, seen } = await start((req, res) => {
      if (req.method === 'POST') res.writeHead(405).end();
      else if (req.headers.authorization === 'Bearer good')
        res.writeHead(200, { 'content-type': 'text/event-stream' }).write(': a stream that stays open\n\n');
      else res.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
    });
    expect(await proofs.prove('good')).toEqual({ is: 'accepted' });
    expect(await proofs.prove('bad')).toMatchObject({ is: 'refused' });
    expect(seen).toEqual(['POST Bearer good', 'GET Bearer good', 'POST Bearer bad', 'GET Bearer bad']);
  });

  it('that is refused brings a short body of data along, and no page', async () => {
    const asked = await start(
      status(403, { 'content-type': 'application/json', 'set-cookie': 'a=b' }, '{"a":1}'),
    );
    const headers = { 'content-type': 'application/json' };
    expect(await asked.proofs.prove('a')).toEqual({ is: 'refused', status: 403, headers, body: '{"a":1}' });
    asked.answer = status(401, { 'content-type': 'text/html' }, '<script>');
    expect(await asked.proofs.prove('a')).toEqual({ is: 'refused', status: 401, headers: {}, body: '' });
    asked.answer = status(401, headers, ' '.repeat(20_000));
    expect(await asked.proofs.prove('a')).toEqual({ is: 'refused', status: 401, headers: {}, body: '' });
  });
});

describe('metadata', () => {
  const PATH = '/.well-known/oauth-protected-resource/mcp';

  it('is JSON with its status, without cookies', async () => {
    const json = { 'content-type': 'application/json' };
    const asked = await start(status(200, { ...json, 'set-cookie': 'a=b' }, '{"resource":"x"}'));
    const headers = { ...json, 'cache-control': 'no-store' };
    expect(await asked.metadata.get(PATH)).toEqual({ status: 200, headers, body: '{"resource":"x"}' });
    asked.answer = status(404, json, '{"error":"none"}');
    expect(await asked.metadata.get(PATH)).toEqual({ status: 404, headers, body: '{"error":"none"}' });
    asked.answer = status(200, { 'content-type': 'text/html' }, '<html>');
    expect(await asked.metadata.get(PATH)).toEqual({ status: 404, headers: {} });
    asked.answer = status(200, json, ' '.repeat(300_000));
    expect(await asked.metadata.get(PATH)).toEqual({ status: 404, headers: {} });
    asked.answer = status(302, { location: 'https://evil.example/' });
    expect((await asked.metadata.get(PATH)).status).toBe(502);
    const before = asked.seen.length;
    expect((await asked.metadata.get('/.well-known/oauth-protected-resource/../../admin')).status).toBe(404);
    expect(asked.seen.length).toBe(before);
    await asked.close();
    expect(await asked.metadata.get(PATH)).toEqual({ status: 503, headers: { 'retry-after': '5' } });
  });

  it('is read so many times at once', async () => {
    const waiting: ServerResponse[] = [];
    const { metadata, seen } = await start((_req, res) => void waiting.push(res));
    const from = (address: string) =>
      Array.from({ length: 20 }, (_, nth) => metadata.get(`${PATH}/${address}/${nth}`, address));
    const all = ['192.0.2.1', '192.0.2.2', '192.0.2.3'].flatMap(from);
    const again = metadata.get(`${PATH}/192.0.2.1/0`, '192.0.2.4');
    await expect.poll(() => waiting.length).toBe(32);
    for (const res of waiting) res.writeHead(404).end();
    const statuses = (await Promise.all(all)).map((reply) => reply.status);
    expect(statuses.filter((code) => code === 404)).toHaveLength(32);
    expect(statuses.filter((code) => code === 503)).toHaveLength(28);
    expect((await again).status).toBe(404);
    expect(seen).toHaveLength(32);
  });
});
