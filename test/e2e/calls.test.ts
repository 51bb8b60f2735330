/** The operator's view of a store: calls are counted, listed, shown, ended and erased, beside running servers. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { text } from 'node:stream/consumers';
import Keyv from 'keyv';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { AuditEvent } from '../../src/observe/audit.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { jwt, QUESTION, type Service, serve, WORD } from '../security/service.ts';
import { type Held, WIRES } from '../security/wires.ts';
import { SHORT, some } from '../short.ts';
import { begin as beginSession, call } from './anywhere.ts';
import { OLD_SECRET, SECRET, scratch, serveHere } from './harness.ts';
import { REDIS, redisDatabase, SQLITE } from './services.ts';

const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const ANN = jwt({ iss: 'https://idp', sub: 'ann' });
const NAME = JSON.stringify(['https://idp', 'ann', 'the-one-client']);
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function started(url: string | undefined, options: object = {}): Promise<Service> {
  const store = url === undefined ? new Keyv() : await openStore(url);
  // Others may have calls on this store.
  const audience = `calls-${randomUUID()}`;
  const service = await serve('shop', { store, audience, ...options });
  ends.push(() => service.close());
  return service;
}

async function begin(name: string, service: Service, token?: string): Promise<Held> {
  const wire = WIRES.find((each) => each.name === name);
  const held = await (wire as (typeof WIRES)[number]).begin({
    root: service.root,
    ...(token !== undefined && { token }),
  });
  ends.push(() => held.close());
  return held;
}

async function run(
  args: readonly string[],
  secret = SECRET,
): Promise<{ out: string; err: string; code: number }> {
  const child = spawn(process.execPath, [CLI, 'calls', ...args], {
    env: { ...process.env, MCP_AWAIT_SECRET: secret },
  });
  const code = new Promise<number>((resolve) => child.once('exit', (exit) => resolve(exit ?? 1)));
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return { out, err, code: await code };
}

/** All keys of a store are listed: Redis has a database of its own here, and PostgreSQL one table for all tests. */
const PLACES = [
  { name: 'memory', url: () => undefined, down: false },
  SQLITE,
  { ...REDIS, url: () => redisDatabase(11) },
];
const KEPT = ['2026-07-28, round trips', '2026-07-28, tasks', 'DRAFT-SEP-1858', '2025-11-25'];

for (const { name, url, down } of PLACES) {
  describe.skipIf(down)(`the calls of a service (${name})`, () => {
    // In memory a call of 2025 is its process's alone, and nothing of it is written.
    const wires = name === 'memory' ? KEPT.slice(0, 3) : KEPT;

    it('are counted while they wait, of one caller and of all', async () => {
      const service = await started(url());
      const { handler } = service;
      const before = await handler.suspended();
      const held: Held[] = [];
      for (const wire of wires) held.push(await begin(wire, service, ANN), await begin(wire, service));
      expect([(await handler.suspended()) - before, await handler.suspended(NAME)]).toEqual([
        wires.length * 2,
        wires.length,
      ]);
      for (const call of held) await call.finish();
      expect([(await handler.suspended()) - before, await handler.suspended(NAME)]).toEqual([0, 0]);
    });

    it('are forgotten of one caller: ended and erased, without those of others', async () => {
      const events: AuditEvent[] = [];
      const service = await started(url(), { audit: (event: AuditEvent) => events.push(event) });
      const others = await begin('2026-07-28, tasks', service);
      for (const wire of wires) await begin(wire, service, ANN);
      const over = await begin('2026-07-28, round trips', service, ANN);
      await over.finish();
      const attempts = await begin('2026-07-28, tasks', service, ANN);
      expect(await service.handler.forget(NAME)).toBe(wires.length + 2);
      expect(await service.handler.suspended(NAME)).toBe(0);
      expect(await service.handler.forget(NAME)).toBe(0);
      const tried = await attempts.attempts['reads it']?.({ root: service.root, token: ANN });
      expect(tried).toContain('Unknown or expired taskId');
      expect(service.effects).toHaveLength(1);
      expect(await others.finish()).toContain(`${WORD} answered`);
      expect(events.filter(({ what, caller }) => what === 'forgotten' && caller === NAME)).toHaveLength(
        wires.length + 2,
      );
    });
  });
}

describe.each([...KEPT, 'workspace-sse', '2024-11-05'])('what is forgotten (%s)', (name) => {
  it('is nowhere in the store any more, streams included', async () => {
    const url = SQLITE.url();
    const service = await started(url);
    const keyv = await openStore(url);
    ends.push(() => keyv.disconnect());
    const telling = async (): Promise<string[]> => {
      const keys: string[] = [];
      for await (const [key, value] of keyv.iterator?.(keyv.namespace) ?? [])
        if (/the-callers-own/.test(JSON.stringify(value))) keys.push(String(key));
      return keys;
    };
    const held = await begin(name, service, ANN);
    expect(await telling()).not.toEqual([]);
    await held.finish();
    expect(await telling()).not.toEqual([]);
    await service.handler.forget(NAME);
    expect(await telling()).toEqual([]);
  });
});

describe('the audit log', () => {
  it('tells who did what to which call, and nothing of what was said', async () => {
    const events: AuditEvent[] = [];
    const service = await started(SQLITE.url(), { audit: (event: AuditEvent) => events.push(event) });
    for (const wire of KEPT) {
      events.length = 0;
      await (await begin(wire, service, ANN)).finish();
      const whats = events.map(({ what }) => what);
      expect(
        whats.filter((what) => what !== 'detached'),
        wire,
      ).toEqual(['called', 'asked', 'answered', 'completed']);
      expect(new Set(events.map(({ call }) => call)).size).toBe(1);
      for (const event of events) expect(event).toMatchObject({ caller: NAME, method: 'tools/call' });
      const told = JSON.stringify(events);
      for (const content of [WORD, QUESTION, 'answered"}', ANN]) expect(told).not.toContain(content);
    }
  });
});

describe('mcp-await calls', () => {
  const place = (url: string): string[] => ['--store', url, '--audience', 'shop'];
  beforeAll(() => expect(CLI).toContain('dist'));

  it.skipIf(SHORT).each([false, true])(
    'lists, shows and ends calls while a server runs (encrypted: %s)',
    async (encrypt) => {
      const url = SQLITE.url();
      const service = await started(url, { encrypt, audience: 'shop' });
      const task = await begin('2026-07-28, tasks', service);
      const hers = await begin('2026-07-28, round trips', service, ANN);
      const listed = await run(['list', ...place(url)]);
      expect(listed.err).toBe('');
      expect(listed.out).toContain('2 calls, 2 of them waiting for their caller');
      for (const name of task.names) expect(listed.out).not.toContain(name);
      const [mine] = (await run(['list', ...place(url), '--caller', NAME, '--json'])).out.trim().split('\n');
      const { call, status, caller } = JSON.parse(mine ?? '{}') as Record<string, string>;
      expect([status, caller]).toEqual(['waiting', NAME]);
      const hidden = (await run(['show', String(call), ...place(url)])).out;
      expect(hidden).toContain('elicitation/create (hidden)');
      for (const content of [WORD, QUESTION]) expect(hidden).not.toContain(content);
      const shown = (await run(['show', String(call), ...place(url), '--answers'])).out;
      for (const content of [WORD, QUESTION]) expect(shown).toContain(content);
      const ended = await run(['expire', String(call), ...place(url)]);
      expect([ended.err, ended.out]).toEqual(['', `${call} is over, and erased\n`]);
      expect(await hers.finish()).not.toContain('answered');
      expect(await task.finish()).toContain(`${WORD} answered`);
      const after = (
        await run([
          'show',
          (await run(['list', ...place(url), '--json'])).out.slice(9, 45).split('"')[0] ?? '',
          ...place(url),
          '--answers',
        ])
      ).out;
      expect(after).toMatch(
        /called, as a task[\s\S]*asked elicitation\/create[\s\S]*answered elicitation\/create[\s\S]*completed/,
      );
    },
  );

  it.skipIf(SHORT)('lists the oldest first, under a header, with the age of its question', async () => {
    const url = SQLITE.url();
    const service = await started(url, { audience: 'shop' });
    const before = Date.now();
    const task = await begin('2026-07-28, tasks', service);
    await begin('2026-07-28, round trips', service, ANN);
    const after = Date.now();
    const rows = (await run(['list', ...place(url), '--json'])).out.trim().split('\n');
    const calls = rows.map((row) => JSON.parse(row) as { created: string; asked: string; isTask: boolean });
    expect(calls.map(({ isTask }) => isTask)).toEqual([true, false]);
    for (const { created, asked } of calls) {
      expect(Date.parse(created)).toBeGreaterThanOrEqual(before);
      expect(Date.parse(asked)).toBeGreaterThanOrEqual(Date.parse(created));
      expect(Date.parse(asked)).toBeLessThanOrEqual(after);
    }
    await task.finish();
    const [header, first, second, sum] = (await run(['list', ...place(url)])).out.split('\n');
    expect(header).toMatch(/^CALL +STATUS +AGE +ASKED +REQUEST +CALLER +WAITS FOR$/);
    expect(first).toMatch(/^\S{12} +completed +\d+s +- +tools\/call \S+ +anonymous$/);
    expect(second).toMatch(/^\S{12} +waiting +\d+s +\d+s +tools\/call \S+ +\S.* elicitation\/create$/);
    expect(second?.indexOf('waiting')).toBe(header?.indexOf('STATUS'));
    expect(sum).toBe('2 calls, 1 of them waiting for their caller');
    const [short = ''] = (second ?? '').split(' ');
    expect((await run(['show', short, ...place(url)])).err).toBe('');
  });

  it.each(some(['2025-11-25', '2025-03-26']))(
    'tells a client of %s that its call was ended',
    async (version) => {
      const url = SQLITE.url();
      const served = await serveHere(() => buildServer(() => {}), {
        store: await openStore(url),
        audience: 'shop',
        secrets: [SECRET],
      });
      ends.push(() => served.close());
      const session = await beginSession([served], { elicitation: {} }, undefined, version);
      const reply = await session.post(0, call('one'));
      await reply.next(({ method }) => method === 'elicitation/create');
      const [listed] = (await run(['list', ...place(url), '--json'])).out.trim().split('\n');
      const waiting = JSON.parse(listed ?? '{}') as { call: string };
      expect((await run(['expire', waiting.call, ...place(url)])).err).toBe('');
      const told = await reply.next(({ id }) => id === 7);
      expect(told.error).toEqual({ code: -32000, message: 'This request was cancelled' });
    },
  );

  it.skipIf(SHORT).each([false, true])(
    'says how many calls it cannot open (encrypted: %s)',
    async (encrypt) => {
      const url = SQLITE.url();
      const service = await started(url, { audience: 'shop', encrypt });
      await begin('2026-07-28, round trips', service);
      await begin('2026-07-28, round trips', service, ANN);
      const wrong = [
        await run(['list', ...place(url)], OLD_SECRET),
        await run(['list', ...place(url), '--json'], OLD_SECRET),
        await run(['list', '--store', url]),
        await run(['show', 'm', ...place(url)], OLD_SECRET),
      ];
      expect(wrong.map(({ code }) => code)).toEqual([1, 1, 1, 2]);
      for (const { out, err } of wrong) {
        expect(err).toMatch(
          /2 calls in this store cannot be opened, such as: .* another service, or under other/,
        );
        for (const content of [WORD, QUESTION]) expect(out + err).not.toContain(content);
      }
      expect(wrong[0]?.out).toBe('0 calls, 0 of them waiting for their caller\n');
      const both = await run(['list', ...place(url)], `${OLD_SECRET},${SECRET}`);
      expect([both.code, both.err]).toEqual([0, '']);
      expect(both.out).toContain('2 calls');
    },
  );

  it.skipIf(SHORT)('says that there is no such SQLite file, and makes none', async () => {
    const path = join(scratch(), 'mistyped.db');
    for (const verb of [['list'], ['show', 'm'], ['expire', 'm']]) {
      const { code, out, err } = await run([...verb, ...place(`sqlite://${path}`)]);
      expect([code, out]).toEqual([2, '']);
      expect(err).toContain(`there is no file ${path}`);
    }
    expect(existsSync(path)).toBe(false);
  });

  it.skipIf(SHORT)('says what is missing', async () => {
    const url = SQLITE.url();
    await begin('2026-07-28, round trips', await started(url, { audience: 'shop' }));
    for (const [args, secret, told] of [
      [['list'], SECRET, /needs --store/],
      [['list', ...place(url)], '', /secrets/],
      [['show', ...place(url)], SECRET, /needs a call/],
      [['show', 'nothing', ...place(url)], SECRET, /there is no call nothing/],
      [['drop', ...place(url)], SECRET, /has no drop/],
      [['list', '--stor', url], SECRET, /there is no option --stor; did you mean --store\?/],
    ] as const) {
      const refused = await run(args, secret);
      expect([refused.code, refused.out]).toEqual([2, '']);
      expect(refused.err).toMatch(told);
      expect(refused.err.trim().split('\n')).toHaveLength(1);
    }
  });
});
