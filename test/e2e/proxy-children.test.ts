/** Children that misbehave, and that none is left on any way a proxy ends. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { type StdioHostOptions, stdioHost } from '../../src/index.ts';
import { SHORT, some } from '../short.ts';
import { legacy, modern, post, textOf } from './clients.ts';
import { type Served, scratch, serveHere } from './harness.ts';
import { effectsFile, failedProxy, isAlive, node, spawnProxy, startProxy } from './proxied.ts';

const open: Served[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((served) => served.close()));
});

async function behind(way: string, options: Partial<StdioHostOptions> = {}): Promise<Served> {
  const [command = '', ...args] = node('misbehaving.mjs', way);
  const served = await serveHere(stdioHost({ command, args, ...options }), { limits: { drain: 300 } });
  open.push(served);
  return served;
}

describe.concurrent('a proxy ends with 1 and one line', () => {
  it.each(
    some([
      [
        'a command that does not exist',
        ['no-such-command'],
        /^mcp-await: no-such-command .*there is no command/,
      ],
      ['one that ends at once', node('misbehaving.mjs', 'exits'), /exit code 3/],
      [
        'one that never answers initialize',
        node('misbehaving.mjs', 'silent'),
        /did not answer initialize within 1000 ms/,
      ],
      [
        'one that only prints',
        [process.execPath, '-e', "console.log('Hello'); setInterval(() => {}, 1e3)"],
        /stdout began with "Hello"/,
      ],
    ] as const),
  )('for %s', async (_what, command, reason) => {
    const { code, stderr } = await failedProxy(command, ['--start-timeout', '1s', '--log', 'error']);
    expect(code).toBe(1);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stderr).toMatch(reason);
    expect(stderr).not.toContain('    at ');
  });
});

describe('servers at work', () => {
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'x', version: '1' },
  };
  const headersOf = (caller?: string, session?: string) => ({
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(caller !== undefined && { authorization: `Bearer ${caller}` }),
    ...(session !== undefined && { 'mcp-session-id': session }),
  });
  const asks = async (
    { url }: Served,
    method: string,
    { caller, session }: { readonly caller?: string | undefined; readonly session?: string } = {},
  ): Promise<Response> =>
    fetch(url, {
      method: 'POST',
      headers: headersOf(caller, session),
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    });
  const leaving = new AbortController();
  afterAll(() => leaving.abort());
  /** A session that is in use: its client has an open stream. */
  const begins = async (served: Served, caller?: string): Promise<unknown> => {
    const response = await asks(served, 'initialize', { caller });
    if (!response.ok) return [response.status, ((await response.json()) as { error: object }).error];
    const session = response.headers.get('mcp-session-id') ?? undefined;
    const stream = await fetch(served.url, { headers: headersOf(caller, session), signal: leaving.signal });
    return stream.ok ? 'ok' : stream.status;
  };
  /** A session whose client has left without ending it. @returns its id */
  const leaves = async (served: Served, caller?: string): Promise<string> =>
    (await asks(served, 'initialize', { caller })).headers.get('mcp-session-id') ?? '';
  const busy = [
    503,
    expect.objectContaining({ code: -32000, data: { 'mcp-await': { reason: 'no-room', retry: true } } }),
  ];

  it('are at most half those of anonymous callers once a known one came', async () => {
    const served = await behind('rubbish', { maxChildren: 4 });
    expect(await begins(served, 'ann')).toBe('ok');
    expect([await begins(served), await begins(served)]).toEqual(['ok', 'ok']);
    expect(await begins(served)).toEqual(busy);
    expect(await begins(served, 'ben')).toBe('ok');
    expect(await begins(served, 'cid')).toEqual(busy);
  });

  it('are at most half those of one known caller', async () => {
    const served = await behind('rubbish', { maxChildren: 4 });
    expect([await begins(served, 'ann'), await begins(served, 'ann')]).toEqual(['ok', 'ok']);
    expect(await begins(served, 'ann')).toEqual(busy);
    expect(await begins(served, 'ben')).toBe('ok');
  });

  it('that strangers took before a known caller came make room for one', async () => {
    const served = await behind('rubbish', { maxChildren: 4 });
    for (let nth = 0; nth < 4; nth += 1) expect(await begins(served)).toBe('ok');
    expect(await begins(served)).toEqual(busy);
    expect([await begins(served, 'ann'), await begins(served, 'ben')]).toEqual(['ok', 'ok']);
    expect(await begins(served)).toEqual(busy);
  });

  it('may all be those of anonymous callers where nobody is known, or there is one', async () => {
    const served = await behind('rubbish', { maxChildren: 2 });
    expect([await begins(served), await begins(served)]).toEqual(['ok', 'ok']);
    expect(await begins(served)).toEqual(busy);
    const single = await behind('rubbish', { maxChildren: 1 });
    expect(await begins(single, 'ann')).toBe('ok');
    expect(await begins(single)).toEqual(busy);
    expect(single.log.text).toContain('1 servers are in use already; raise maxChildren');
  });

  it('do not count those of sessions whose clients left: the one that is idle longest makes room', async () => {
    const pids = effectsFile();
    const [command = '', ...args] = node('misbehaving.mjs', 'well', pids.path);
    const served = await serveHere(stdioHost({ command, args, maxChildren: 4 }), { limits: { drain: 300 } });
    open.push(served);
    const alive = () => pids.lines().map((pid) => isAlive(Number(pid)));
    const ann = await leaves(served, 'ann');
    expect(await begins(served)).toBe('ok');
    const stranger = await leaves(served);
    expect(await leaves(served, 'ben')).not.toBe('');
    expect(alive()).toEqual([true, true, true, true]);
    // A stranger's first, and none of a session in use.
    expect(await begins(served, 'cid')).toBe('ok');
    expect(alive()).toEqual([true, true, false, true, true]);
    // No stranger costs a known caller's.
    expect((await asks(served, 'initialize')).status).toBe(503);
    expect(await begins(served, 'dan')).toBe('ok');
    expect(alive()).toEqual([false, true, false, true, true, true]);
    // Its session goes on, with a server that is started for it.
    const listed = await asks(served, 'tools/list', { caller: 'ann', session: ann });
    expect(await listed.text()).toContain('"name":"try"');
    expect(alive()).toEqual([false, true, false, false, true, true, true]);
    const refused = await asks(served, 'tools/list', { session: stranger });
    expect(await refused.text()).toContain('"reason":"no-room"');
  });
});

describe('a child', () => {
  it('that writes rubbish to its stdout is served, and the log quotes it', async () => {
    const served = await behind('rubbish');
    expect(textOf(await post(served.url, { tool: 'try' }))).toBe('done');
    expect(served.log.text).toContain('Starting up...');
    expect(served.log.text).toContain('is not a JSON-RPC message');
  });

  it.skipIf(SHORT)('that floods does not keep others from their answers', async () => {
    const served = await behind('floods');
    const other = await legacy(served.url);
    const flood = post(served.url, { tool: 'try' });
    expect(await other.toolNames()).toEqual(['try']);
    expect(textOf(await flood)).toBe('done');
    await other.close();
  });

  it('that writes a line of 100 MB is ended, and its client told', async () => {
    const served = await behind('long-line');
    const before = process.memoryUsage().rss;
    expect(JSON.stringify(await post(served.url, { tool: 'try' }))).toContain('may not be run again');
    expect(process.memoryUsage().rss - before).toBeLessThan(100_000_000);
    expect(served.log.text).toContain('a line longer than');
  });

  it('that never ends its line is ended for others of strangers, not for one of a known caller', async () => {
    const served = await behind('half-line');
    const half = (headers = {}): Promise<string> =>
      post(served.url, { tool: 'try', headers }).then((reply) => JSON.stringify(reply));
    const ended = (): number =>
      served.log.lines.filter(({ detail }) =>
        String(detail.reason).includes('the memory for what servers sent is full'),
      ).length;
    const known = half({ authorization: 'Bearer ann' });
    const isKnownEnded = known.then(() => true);
    // Four of them are the strangers' share: each other one costs the oldest.
    const strangers = Array.from({ length: 6 }, () => half({ 'x-forwarded-for': '192.0.2.1' }));
    await expect.poll(ended).toBe(2);
    expect(await Promise.any(strangers)).toContain('may not be run again');
    expect(await Promise.race([isKnownEnded, false])).toBe(false);
  });

  it('does not get the secret of its proxy, unless its options name it', async () => {
    const shows = "console.error('SECRET', process.env.MCP_AWAIT_SECRET, process.env.OTHER); process.exit(3)";
    vi.stubEnv('MCP_AWAIT_SECRET', 'the-secret');
    vi.stubEnv('OTHER', 'other');
    for (const [env, seen] of [
      [{}, 'SECRET undefined other'],
      [{ MCP_AWAIT_SECRET: 'its-own' }, 'SECRET its-own other'],
    ] as const) {
      const lines: string[] = [];
      const note = (line: string): void => void lines.push(line);
      const logger = { debug: note, info: note, warn: note, error: note };
      const host = stdioHost({ command: process.execPath, args: ['-e', shows], env });
      host.attach(logger, () => {});
      await expect(host.check()).rejects.toMatchObject({ code: 'host-gone' });
      expect(lines).toContain(seen);
    }
    vi.unstubAllEnvs();
  });

  it('that dies in a call is started again', async () => {
    const served = await behind('dies');
    for (let n = 0; n < 2; n += 1) {
      expect(JSON.stringify(await post(served.url, { tool: 'try' }))).toContain('may not be run again');
    }
    expect(served.log.text).toContain('exit code 7');
  });

  it.skipIf(SHORT)('that dies in a call which may be run again ends it after some attempts', async () => {
    const served = await behind('dies', { replay: 'allow' });
    expect(JSON.stringify(await post(served.url, { tool: 'try' }))).toContain('ended or cannot be started');
  });

  it('that asks without a client’s capability, and answers without a request, completes its call', async () => {
    const served = await behind('asks-nobody');
    const client = await legacy(served.url);
    expect(await client.tool('try')).toBe('done');
    await client.close();
  });

  it('that responds twice has responded once', async () => {
    const served = await behind('twice');
    const client = await modern(served.url);
    expect(await client.tool('try')).toBe('done');
    expect(await client.tool('try')).toBe('done');
    await client.close();
  });
});

describe.concurrent('no child is left', () => {
  const started = async (way: string) => {
    const pids = effectsFile();
    const proxy = await startProxy(node('misbehaving.mjs', way, pids.path));
    const client = await modern(proxy.url);
    expect(await client.tool('try')).toBe('done');
    await client.close();
    return { proxy, pids: () => pids.lines().map(Number) };
  };
  const gone = (pids: () => number[]) =>
    vi.waitFor(() => expect(pids().filter(isAlive)).toEqual([]), { timeout: 60_000, interval: 50 });

  it.each(some(['SIGTERM', 'SIGINT', 'SIGHUP'] as const))('on %s', async (signal) => {
    const { proxy, pids } = await started('well');
    expect(await proxy.stop(signal)).toBe(0);
    await gone(pids);
  });

  it.skipIf(SHORT)('when it ignores the end of its input and SIGTERM', async () => {
    const { proxy, pids } = await started('stays');
    expect(await proxy.stop()).toBe(0);
    await gone(pids);
  });

  it.skipIf(SHORT)('when its proxy is killed by a signal that it cannot catch', async () => {
    const { proxy, pids } = await started('stays');
    expect(await proxy.stop('SIGKILL')).toBe('SIGKILL');
    await gone(pids);
  });

  it.skipIf(SHORT)('when the pipe to the client of its proxy breaks', async () => {
    const pids = effectsFile();
    const { child, ended } = spawnProxy(node('misbehaving.mjs', 'stays', pids.path), ['--stdio']);
    const params = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'x', version: '1' },
    };
    const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params };
    child.stdin.write(`${JSON.stringify(initialize)}\n`);
    await once(child.stdout, 'data');
    // Nobody reads what it answers from here on; its stdin stays open.
    child.stdout.destroy();
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'ping' })}\n`);
    expect(await ended).toBe(0);
    expect(pids.lines().length).toBeGreaterThan(0);
    await gone(() => pids.lines().map(Number));
  });

  it.skipIf(SHORT)('when its proxy crashes', async () => {
    const pids = effectsFile();
    const script = join(scratch(), 'crash.mjs');
    const index = new URL('../../dist/src/index.js', import.meta.url).href;
    const [command, ...args] = node('misbehaving.mjs', 'stays', pids.path);
    writeFileSync(
      script,
      `import { stdioHost } from '${index}';
       const host = stdioHost(${JSON.stringify({ command, args })});
       await host({ era: 'legacy', revision: '2025-11-25', clientCapabilities: {}, clientInfo: { name: 'x', version: '1' }, sessionId: 's' });
       setTimeout(() => { throw new Error('crash'); }, 10);`,
    );
    const child = spawn(process.execPath, [script], { stdio: 'ignore' });
    expect((await once(child, 'exit'))[0]).toBe(1);
    expect(pids.lines()).toHaveLength(1);
    await gone(() => pids.lines().map(Number));
  });

  it.skipIf(SHORT)('of what a child started itself', async () => {
    const pids = effectsFile();
    const inner = node('misbehaving.mjs', 'stays', pids.path);
    const proxy = await startProxy(['sh', '-c', `${inner.join(' ')}; true`]);
    expect(pids.lines().length).toBeGreaterThan(0);
    await proxy.stop();
    await gone(() => pids.lines().map(Number));
  });
});
