/** A server that cannot be changed, behind the proxy: its user answers on the page as well. */
import process from 'node:process';
import { afterEach, expect, it } from 'vitest';
import { stdioHost } from '../../src/index.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { answer, ask, callAs, linkIn, SERVER } from './proxied.ts';

const PYTHON = new URL('../fixtures/asking_server.py', import.meta.url).pathname;
const MODERN = new URL('../fixtures/modern-server.ts', import.meta.url).pathname;
let served: Served;
afterEach(() => served.close());

it.each([
  ['of SDK v1', process.execPath, [SERVER], 'writes'],
  ['in Python, without an SDK', 'python3', [PYTHON], 'greet'],
  ['of 2026-07-28 alone', process.execPath, ['--import', 'tsx', MODERN], 'one'],
])('takes an answer for a server %s, when its calls may be run again', async (_kind, command, args, tool) => {
  // One that returns its asks has nothing to run again.
  const may = tool === 'one' ? { upstream: '2026-07-28' as const } : { replay: 'allow' as const };
  served = await serveHere(stdioHost({ command, args, ...may }), {
    secrets: [SECRET],
    ask,
  });
  const call = await callAs('ann', served.url, tool);
  await answer(linkIn(await call(), served));
  expect(await call()).toBe('Hello Ada');
});

it('says in the log that it takes none when they may not', async () => {
  served = await serveHere(stdioHost({ command: process.execPath, args: [SERVER] }), {
    secrets: [SECRET],
    ask,
  });
  expect(served.log.text).toContain('with --replay allow they may');
  expect(await (await callAs('ann', served.url))()).toContain('failed: ');
});
