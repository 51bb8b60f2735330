/** A remote server of 2026-07-28 that does what servers of that revision do not do. */
import { createServer } from 'node:http';
import { expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { ModernPeerLink } from '../../src/proxy/modern.ts';
import { openModernWire } from '../../src/proxy/modern-wires.ts';
import { LogBook, listen, shut } from '../e2e/harness.ts';

const wireTo = (url: string, logger: LogBook) =>
  openModernWire(
    { url },
    logger,
    (response) => response,
    () => undefined,
  );

it('is told of in the log twenty times, and its answer is taken', async () => {
  const server = createServer((req, res) => {
    req.resume();
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (message: object): void =>
      void res.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`);
    for (let id = 0; id < 100; id += 1) send({ id: `own-${id}`, method: 'elicitation/create', params: {} });
    send({ id: 1, result: { resultType: 'complete', content: [] } });
    res.end();
  });
  const url = await listen(server);
  const logger = new LogBook();
  const wire = wireTo(url, logger);
  const heard: unknown[] = [];
  try {
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'harm' } } as const;
    const { answer } = await wire.open(call, new AbortController().signal, (message) => heard.push(message));
    expect(await answer).toMatchObject({ id: 1, result: { content: [] } });
    expect(heard).toEqual([]);
    expect(logger.lines.filter(({ message }) => message.includes('was dropped'))).toHaveLength(20);
  } finally {
    await wire.close();
    server.closeAllConnections();
    await shut(server);
  }
});

it('leaves the answer of a cancelled task open: closing rejects nothing that nobody waits for', async () => {
  let opened = (): void => {};
  const isOpen = new Promise<void>((resolve) => {
    opened = resolve;
  });
  const server = createServer((req, res) => {
    req.resume();
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    res.write(': open\n\n');
    opened();
  });
  const url = await listen(server);
  const unhandled: unknown[] = [];
  const note = (reason: unknown): unknown => unhandled.push(reason);
  process.on('unhandledRejection', note);
  const logger = new LogBook();
  const wire = wireTo(url, logger);
  const account = (breakOff: () => void) => new Budget(1_000).open({}, breakOff);
  const link = new ModernPeerLink(
    { wire, logger, listens: false, account, rate: 1_000 },
    { message: () => {}, ended: () => {} },
  );
  try {
    const params = { requestState: 'mcp-await/task:task-1' };
    link.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
    await isOpen;
    // Its headers have come once a second reply's have.
    const { signal } = new AbortController();
    const list = await wire.open(
      { jsonrpc: '2.0', id: 2, method: 'tools/list', params: {} },
      signal,
      () => {},
    );
    await link.close();
    await expect(list.answer).rejects.toThrow();
    await new Promise(setImmediate);
    expect(unhandled).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
    server.closeAllConnections();
    await shut(server);
  }
});

it('does not have its client call again where an earlier round is done, though the server has not got the request', async () => {
  const server = createServer();
  // The port is free again, and another test's server may take it: at an address that none of them listens at.
  const url = (await listen(server)).replace('127.0.0.1', '127.0.0.2');
  await shut(server);
  const logger = new LogBook();
  const heard: unknown[] = [];
  const lost: unknown[] = [];
  const account = (breakOff: () => void) => new Budget(1_000_000).open({}, breakOff);
  const link = new ModernPeerLink(
    { wire: wireTo(url, logger), logger, listens: false, account, rate: 1_000 },
    {
      message: (message) => heard.push(message),
      ended: () => {},
      lost: (id) => lost.push(id),
    },
  );
  const rounds = [{}, { inputResponses: {} }, { requestState: 'state' }];
  for (const [id, more] of rounds.entries())
    link.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'any', ...more } });
  await expect.poll(() => heard.length).toBe(rounds.length);
  const told = (heard as { id: number; unpassed?: true; error: { message: string } }[]).toSorted(
    (a, b) => a.id - b.id,
  );
  expect(told.map(({ unpassed, error }) => [unpassed, error.message.includes('call again')])).toEqual([
    [true, true],
    [true, false],
    [true, false],
  ]);
  expect(lost).toEqual([]);
  await link.close();
});
