/**
 * Short runs of the fuzz of pipes, and of replies of remote servers; `npm run fuzz -- --frames 300000`, `--lines 300000`
 * and `--upstream 50000` are the long ones.
 */
import { expect, it } from 'vitest';
import { fuzzStdio } from './stdio.ts';
import { fuzzUpstream } from './upstream.ts';
import { fuzzWebSocket } from './websocket.ts';

it('ends no process, leaves no rejection, and has no internal error in 2,000 messages on WebSockets', {
  timeout: 300_000,
}, async () => {
  const { sent, problems, replies, byEnd } = await fuzzWebSocket({ messages: 2_000, seed: 2_000 });
  expect(problems).toEqual([]);
  expect(sent).toBeGreaterThanOrEqual(2_000);
  // It means nothing unless much of it is served, and much refused.
  expect(replies).toBeGreaterThan(50);
  for (const end of ['open', 'closed', 'refused'])
    expect([...byEnd.keys()].filter((each) => each.startsWith(end))).not.toEqual([]);
});

it('ends no process, leaves no rejection, and has no internal error in 2,000 lines on stdio', {
  timeout: 300_000,
}, async () => {
  const { sent, problems, replies } = await fuzzStdio({ messages: 2_000, seed: 2_000 });
  expect(problems).toEqual([]);
  expect(sent).toBeGreaterThanOrEqual(2_000);
  expect(replies).toBeGreaterThan(50);
});

it('ends no process, leaves no rejection and no connection, in 1,000 calls of remote servers that reply with anything', {
  timeout: 300_000,
}, async () => {
  const { calls, problems, byEnd } = await fuzzUpstream({ calls: 1_000, seed: 1 });
  expect(problems).toEqual([]);
  // It means nothing unless many calls succeed, and many fail.
  expect(byEnd.get('result') ?? 0).toBeGreaterThan(calls / 20);
  expect(byEnd.get('error -32603') ?? 0).toBeGreaterThan(calls / 4);
});
