/** A remote server that takes no answers is ended where those fill the memory of servers. */
import { createServer } from 'node:http';
import { expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { FULL } from '../../src/proxy/link.ts';
import { openRemote } from '../../src/proxy/remote.ts';
import { listen, shut } from '../e2e/harness.ts';

it.each([
  ['small ones, which are requests all the same', 100, 8, 1_000_000],
  ['long ones', 1_000_000, 3, 5_000_000],
])('%s', async (_what, length, held, most) => {
  const server = createServer((req) => void req.resume());
  const url = await listen(server);
  const ended: string[] = [];
  const budget = new Budget(2 * most);
  const link = openRemote(
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
