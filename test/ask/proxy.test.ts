/** A server that cannot be changed, behind the proxy: its user answers on the page as well. */
import process from 'node:process';
import { afterEach, expect, it } from 'vitest';
import { stdioHost } from '../../src/index.ts';
import { openStore } from '../../src/store.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { effectsFile, isAlive } from '../e2e/proxied.ts';
import { SQLITE } from '../e2e/services.ts';
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

it.each([
  ['another process has gone on with the call', {}],
  ['nothing of the call is kept in memory', { limits: { frames: 0 } }],
])('ends a server that would wait on and give up, once %s', async (_when, options) => {
  const pids = effectsFile();
  const host = () =>
    stdioHost({ command: 'python3', args: [PYTHON], replay: 'allow', env: { PIDS: pids.path } });
  const store = SQLITE.url();
  const serve = async () =>
    serveHere(host(), { secrets: [SECRET], ask, store: await openStore(store), ...options });
  served = await serve();
  const other = await serve();
  try {
    const shown = await (await callAs('ann', served.url, 'greet'))();
    const [pid] = pids.lines();
    await answer(linkIn(shown, other));
    expect(await (await callAs('ann', other.url, 'greet'))()).toBe('Hello Ada');
    await expect.poll(() => isAlive(Number(pid))).toBe(false);
  } finally {
    await other.close();
  }
});

it('has an effect once where its call is cancelled after the answer, and made again at another process', async () => {
  const effects = effectsFile();
  const host = () =>
    stdioHost({ command: process.execPath, args: [SERVER], replay: 'allow', env: { EFFECTS: effects.path } });
  const store = SQLITE.url();
  const serve = async () => serveHere(host(), { secrets: [SECRET], ask, store: await openStore(store) });
  served = await serve();
  const other = await serve();
  try {
    const call = await callAs('ann', served.url, 'pays');
    await answer(linkIn(await call(), served));
    const stop = new AbortController();
    const stopped = call(stop.signal).catch(() => 'stopped');
    await expect.poll(effects.lines).toContain('works');
    stop.abort();
    expect(await stopped).toBe('stopped');
    await expect.poll(effects.lines, { timeout: 5_000 }).toContain('paid');
    expect(await (await callAs('ann', other.url, 'pays'))()).toBe('Hello Ada');
    expect(effects.lines().filter((line) => line === 'paid')).toHaveLength(1);
  } finally {
    await other.close();
  }
});

it('says in the log that it takes none when they may not', async () => {
  served = await serveHere(stdioHost({ command: process.execPath, args: [SERVER] }), {
    secrets: [SECRET],
    ask,
  });
  expect(served.log.text).toContain('with --replay allow alone');
  expect(await (await callAs('ann', served.url))()).toContain('failed: ');
});
