/** Remote servers that do not answer what they are sent. */
import { createServer, type Server, type ServerResponse } from 'node:http';
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

it('a server names no version by the megabyte', async () => {
  const versions: unknown[] = [];
  const server = createServer(async (req, res) => {
    const { id } = JSON.parse(Buffer.concat(await req.toArray()).toString() || '{}');
    versions.push(String(req.headers['mcp-protocol-version']).length);
    res.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 's' });
    res.end(JSON.stringify({ jsonrpc: '2.0', id, result: { protocolVersion: 'x'.repeat(10_000) } }));
  });
  const { link, heard, close } = await linked(server, 1_000_000, 1_000_000);
  link.send({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'x' } });
  await expect.poll(() => heard).toEqual([1, 2]);
  expect(versions).toEqual(['undefined'.length, 'undefined'.length]);
  await close();
});

it('a server has taken that its client is there before it gets a request', async () => {
  const seen: unknown[] = [];
  const server = createServer(async (req, res) => {
    const body = Buffer.concat(await req.toArray()).toString();
    const { id, method } = body === '' ? { id: 0, method: 'GET' } : JSON.parse(body);
    if (method === 'notifications/initialized') await new Promise((resolve) => setTimeout(resolve, 50));
    seen.push(method);
    if (method === 'GET')
      return void res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    if (id === undefined) return void res.writeHead(202).end();
    res.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 's' });
    res.end(JSON.stringify({ jsonrpc: '2.0', id, result: {} }));
  });
  const { link, heard, close } = await linked(server, 1_000_000, 1_000_000);
  link.send({ jsonrpc: '2.0', method: 'notifications/initialized' });
  link.send({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'x' } });
  await expect.poll(() => heard).toEqual([1, 2]);
  await expect.poll(() => seen).toHaveLength(4);
  expect(seen.slice(0, 2)).toEqual(['initialize', 'notifications/initialized']);
  expect(seen.slice(2).sort()).toEqual(['GET', 'tools/call']);
  await close();
});

it('an HTTP+SSE server that names a long endpoint is left', async () => {
  const server = createServer((req, res) => {
    if (req.method !== 'GET') return void res.writeHead(405).end();
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    res.write(`event: endpoint\ndata: /messages?session=${'x'.repeat(100_000)}\n\n`);
  });
  const ended: string[] = [];
  const link = new RemoteLink(
    { url: await listen(server) },
    (response) => response,
    (breakOff) => new Budget(1_000).open({}, breakOff),
    { message: () => {}, ended: (reason) => void ended.push(reason) },
  );
  link.send({ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} });
  await expect.poll(() => ended).toEqual(['it names a URL that is too long']);
  await shut(server);
});

it('an HTTP+SSE server that names no endpoint is left as well', async () => {
  let open = 0;
  const server = createServer((req, res) => {
    if (req.method !== 'GET') return void res.writeHead(405).end();
    open += 1;
    res.once('close', () => {
      open -= 1;
    });
    res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  });
  const link = new RemoteLink(
    { url: await listen(server) },
    (response) => response,
    (breakOff) => new Budget(1_000).open({}, breakOff),
    { message: () => {}, ended: () => {} },
  );
  link.send({ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} });
  await expect.poll(() => open).toBe(1);
  link.kill();
  await expect.poll(() => open).toBe(0);
  await shut(server);
});

describe('one that takes no answers is ended where those fill the memory of servers', () => {
  it.each([
    ['small ones, which are requests all the same', false, 100, 8, 1_000_000],
    ['long ones', false, 1_000_000, 3, 5_000_000],
    ['and notifications as well', true, 100, 8, 1_000_000],
    ['long notifications', true, 1_000_000, 3, 5_000_000],
  ])('%s', async (_what, isNotified, length, held, most) => {
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
    const answer = (id: number): void => {
      const text = 'x'.repeat(length);
      link.send({
        jsonrpc: '2.0',
        ...(isNotified ? { method: 'notifications/x', params: { text } } : { id, result: { text } }),
      });
    };
    for (let id = 0; id < held; id += 1) answer(id);
    expect(ended).toEqual([]);
    for (let id = 0; id < 2 * held; id += 1) answer(id);
    expect(ended).toEqual([FULL]);
    expect(budget.bytes).toBe(0);
    server.closeAllConnections();
    await shut(server);
  });
});

/** A link to a server that has answered its `initialize`, what it heard, and why it ended. */
async function linked(server: Server, most: number, held: number) {
  const heard: unknown[] = [];
  const ended: string[] = [];
  const lost: unknown[] = [];
  const link = new RemoteLink(
    { url: await listen(server) },
    (response, reading) => boundedResponse(response, most, reading),
    (breakOff) => new Budget(held).open({}, breakOff),
    {
      message: ({ id, method }) => void heard.push(method ?? id),
      ended: (reason) => void ended.push(reason),
      lost: (id, _reason, how) => void lost.push([id, how?.untaken]),
    },
  );
  link.send({ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} });
  await expect.poll(() => heard).toEqual([1]);
  const close = async (): Promise<void> => {
    await link.close();
    server.closeAllConnections();
    await shut(server);
  };
  return { link, heard, ended, lost, close };
}

describe('what a GET returns that is no event stream', () => {
  /** A server whose GETs are texts without end, and whose calls end before their response. */
  async function connected() {
    const gets: string[] = [];
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
    return { ...(await linked(server, 1_000_000, 1_000_000)), gets };
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
    await expect.poll(() => ended).toEqual(['a reply of it ended without the response']);
    expect(heard).toEqual([1]);
    await close();
  });
});

describe('a remote server in front of which a balancer stands', () => {
  /** A server whose replies to `tools/call` have an ask or an event of its test's, and go on. */
  async function balanced(
    refuse: (body: string) => number | undefined,
    reply: (res: ServerResponse, id: unknown) => void,
  ) {
    const bodies: string[] = [];
    const open = new Set<ServerResponse>();
    const server = createServer(async (req, res) => {
      if (req.method !== 'POST') return void res.writeHead(405).end();
      const body = Buffer.concat(await req.toArray()).toString();
      bodies.push(body);
      const status = refuse(body);
      // One of a gateway, say: a page.
      if (status === 200) return void res.writeHead(200, { 'content-type': 'text/html' }).end('<p>no');
      if (status !== undefined) return void res.writeHead(status).end('no');
      const { id, method } = JSON.parse(body);
      if (method === 'tools/call') {
        open.add(res.once('close', () => open.delete(res)));
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        reply(res, id);
      } else if (method === 'initialize') {
        res.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 's' });
        res.end('{"jsonrpc":"2.0","id":1,"result":{}}');
      } else res.writeHead(202).end();
    });
    return { ...(await linked(server, 20_000_000, 100_000_000)), bodies, open };
  }
  const event = (message: object): string => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`;
  const call = (id: number) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'x' } });
  const answer = { jsonrpc: '2.0', id: 'ask', result: { action: 'accept', content: { n: 1 } } };

  it.each([502, 503, 429, 200])('gets an answer again that was refused with %i', async (status) => {
    let refusals = 2;
    const isRefused = (body: string): boolean => body.includes('accept') && refusals-- > 0;
    const { link, bodies, heard, ended, close } = await balanced(
      (body) => (isRefused(body) ? status : undefined),
      (res) => void res.write(event({ id: 'ask', method: 'elicitation/create', params: {} })),
    );
    link.send(call(2));
    await expect.poll(() => heard).toContain('elicitation/create');
    link.send(answer);
    await expect.poll(() => bodies.filter((body) => body.includes('accept'))).toHaveLength(3);
    expect(ended).toEqual([]);
    await close();
  });

  // The proxy's replay rule decides whether the call runs again, by whether the server may have taken the request.
  it.each([
    [200, false],
    [502, false],
    [504, false],
    [429, true],
    [503, true],
  ])('gets a request no second time that was refused with %i', async (status, untaken) => {
    const { link, bodies, lost, ended, close } = await balanced(
      (body) => (body.includes('tools/call') ? status : undefined),
      () => {},
    );
    link.send(call(2));
    await expect.poll(() => lost).toEqual([[2, untaken]]);
    expect(ended).toEqual([]);
    expect(bodies.filter((body) => body.includes('tools/call'))).toHaveLength(1);
    await close();
  });

  it.each([401, 403])(
    'that refuses an answer with %i is given up: its call would wait for ever',
    async (status) => {
      const { link, heard, ended, close } = await balanced(
        (body) => (body.includes('accept') ? status : undefined),
        (res) => void res.write(event({ id: 'ask', method: 'elicitation/create', params: {} })),
      );
      link.send(call(2));
      await expect.poll(() => heard).toContain('elicitation/create');
      link.send(answer);
      await expect.poll(() => ended).toHaveLength(1);
      await close();
    },
  );

  it('need not end its replies: each is let go once its response has come', async () => {
    const { link, heard, ended, open, close } = await balanced(
      () => undefined,
      (res, id) => void res.write(event({ id, result: {} })),
    );
    for (let id = 2; id < 50; id += 1) link.send(call(id));
    await expect.poll(() => heard).toHaveLength(49);
    await expect.poll(() => open.size).toBe(0);
    expect(ended).toEqual([]);
    await close();
  });

  it('sends no event id that no header could hold', async () => {
    const { link, heard, close } = await balanced(
      () => undefined,
      (res) => void res.write(`id: ${'x'.repeat(10_000_000)}\ndata:\n\n`),
    );
    link.send(call(2));
    await expect.poll(() => heard).toEqual([1, 2]);
    await close();
  });

  it('is read no faster for sending what is no message', async () => {
    const order: string[] = [];
    const sending = async (what: string, many: number) => {
      const { link, heard, ended, close } = await balanced(
        () => undefined,
        (res, id) => void res.write(what.repeat(many) + event({ id, result: {} })),
      );
      link.send(call(2));
      await expect.poll(() => heard).toContain(2);
      order.push(what);
      expect(ended).toEqual([]);
      await close();
    };
    const message = event({ method: 'notifications/x' });
    const others = ['data: x\n\n', 'data: {}\n\n'];
    await Promise.all([...others.map((what) => sending(what, 300)), sending(message, 1_000)]);
    expect(order[0]).toBe(message);
  });
});
