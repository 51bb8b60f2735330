/** Remote servers that do not answer what they are sent. */
import { createServer } from 'node:http';
import { describe, expect, it } from 'vitest';
import { boundedResponse } from '../../src/base/bounded-response.ts';
import { Budget } from '../../src/base/budget.ts';
import { FULL } from '../../src/proxy/link.ts';
import { RemoteLink } from '../../src/proxy/remote.ts';
import { listen, shut } from '../e2e/harness.ts';

it('a session ends though its server does not answer that', async () => {
  const seen: unknown[] = [];
  const server = createServer((req, res) => {
    seen.push(req.method);
    if (req.method !== 'POST') return;
    res.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 's' });
    res.end('{"jsonrpc":"2.0","id":1,"result":{}}');
  });
  const answered: unknown[] = [];
  const ended: string[] = [];
  const link = new RemoteLink(
    { url: await listen(server) },
    (response) => response,
    (breakOff) => new Budget(1_000).open({}, breakOff),
    { message: ({ id }) => void answered.push(id), ended: (reason) => void ended.push(reason) },
  );
  link.send({ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} });
  await expect.poll(() => answered).toEqual([1]);
  await link.close();
  expect(seen).toEqual(['POST', 'DELETE']);
  expect(ended).toEqual(['it was closed']);
  server.closeAllConnections();
  await shut(server);
});

describe('one that takes no answers is ended where those fill the memory of servers', () => {
  it.each([
    ['small ones, which are requests all the same', 100, 8, 1_000_000],
    ['long ones', 1_000_000, 3, 5_000_000],
  ])('%s', async (_what, length, held, most) => {
    const server = createServer((req) => void req.resume());
    const url = await listen(server);
    const ended: string[] = [];
    const budget = new Budget(2 * most);
    const link = new RemoteLink(
      { url },
      (response) => response,
      (breakOff) => budget.open({}, breakOff),
      { message: () => {}, ended: (reason) => void ended.push(reason) },
    );
    const answer = (id: number): void =>
      link.send({ jsonrpc: '2.0', id, result: { text: 'x'.repeat(length) } });
    for (let id = 0; id < held; id += 1) answer(id);
    expect(ended).toEqual([]);
    for (let id = 0; id < 2 * held; id += 1) answer(id);
    expect(ended).toEqual([FULL]);
    expect(budget.bytes).toBe(0);
    server.closeAllConnections();
    await shut(server);
  });
});

describe('what a GET returns that is no event stream', () => {
  /** A server whose GETs are texts without end, and whose calls end before their response. */
  async function connected() {
    const gets: string[] = [];
    const heard: unknown[] = [];
    const ended: string[] = [];
    const server = createServer(async (req, res) => {
      if (req.method === 'GET') {
        gets.push('open');
        res.once('close', () => gets.push('closed'));
        res.writeHead(200, { 'content-type': 'text/plain' });
        res.write('data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n');
        return;
      }
      const body = Buffer.concat(await req.toArray()).toString();
      if (body.includes('tools/call')) {
        res.writeHead(200, { 'content-type': 'text/event-stream' }).end('id: 1\ndata: \n\n');
      } else if (body.includes('initialize"')) {
        res.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 's' });
        res.end('{"jsonrpc":"2.0","id":1,"result":{}}');
      } else res.writeHead(202).end();
    });
    const link = new RemoteLink(
      { url: await listen(server) },
      (response, reading) => boundedResponse(response, 1_000_000, reading),
      (breakOff) => new Budget(1_000).open({}, breakOff),
      {
        message: ({ id, method }) => void heard.push(method ?? id),
        ended: (reason) => void ended.push(reason),
      },
    );
    link.send({ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} });
    await expect.poll(() => heard).toEqual([1]);
    const close = async (): Promise<void> => {
      await link.close();
      await shut(server);
    };
    return { link, gets, heard, ended, close };
  }

  it('is not read as the stream of a session', async () => {
    const { link, gets, heard, close } = await connected();
    link.send({ jsonrpc: '2.0', method: 'notifications/initialized' });
    await expect.poll(() => gets).toEqual(['open', 'closed']);
    expect(heard).toEqual([1]);
    await close();
  });

  it('is not the rest of a reply: its call is lost', async () => {
    const { link, heard, ended, close } = await connected();
    link.send({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'x' } });
    await expect.poll(() => ended, { timeout: 10_000 }).toEqual(['a reply of it ended without the response']);
    expect(heard).toEqual([1]);
    await close();
  });
});
