/** A remote server of 2026-07-28 that sends what servers of that revision do not send. */
import { createServer } from 'node:http';
import { expect, it } from 'vitest';
import { openModernWire } from '../../src/proxy/modern-wires.ts';
import { LogBook, listen, shut } from '../e2e/harness.ts';

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
  const wire = openModernWire(
    { url },
    logger,
    (response) => response,
    () => undefined,
  );
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
