/**
 * An attacker who reads the store. With `encrypt: true` that shows the names of records, their number and sizes; in no
 * mode does a name hold an id that is its caller's secret, or identify a caller.
 */
import { createHash } from 'node:crypto';
import type Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { readName } from '../../src/checkpoint/names.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { OLD_SECRET, SECRET } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { some } from '../short.ts';
import { jwt, QUESTION, type Service, serve, WORD } from './service.ts';
import { type As, expectUntouched, type Held, tryAll, WIRES } from './wires.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function started(url: string, encrypt: boolean, secret = SECRET): Promise<Service> {
  const service = await serve('shop', { store: await openStore(url), secrets: [secret], encrypt });
  ends.push(() => service.close());
  return service;
}

async function recordsIn(url: string): Promise<Map<string, string>> {
  const keyv: Keyv = await openStore(url);
  const records = new Map<string, string>();
  for await (const [key, value] of keyv.iterator?.(keyv.namespace) ?? [])
    records.set(String(key), JSON.stringify(value));
  await keyv.disconnect();
  return records;
}

async function heldOn(url: string, service: Service, token?: string): Promise<Map<string, Held>> {
  const held = new Map<string, Held>();
  for (const wire of WIRES) {
    const call = await wire.begin({ root: service.root, ...(token !== undefined && { token }) });
    ends.push(() => call.close());
    held.set(wire.name, call);
  }
  expect((await recordsIn(url)).size).toBeGreaterThan(20);
  return held;
}

describe.each(some([true, false]))('the names of records, encrypt: %s', (encrypt) => {
  it('hold no id that a client was given, on any wire', async () => {
    const url = SQLITE.url();
    const held = await heldOn(url, await started(url, encrypt));
    const keys = [...(await recordsIn(url)).keys()].join('\n');
    for (const [wire, { names }] of held) {
      for (const name of names) {
        expect(name.length, `an id of ${wire}`).toBeGreaterThan(20);
        expect(keys, wire).not.toContain(name);
      }
    }
  });

  it('open nothing when they are taken for ids', async () => {
    const url = SQLITE.url();
    const service = await started(url, encrypt);
    const held = await heldOn(url, service);
    const labels = [...(await recordsIn(url)).keys()].map((key) => readName(key)?.label ?? key);
    expect(labels.every((label) => /^[0-9a-z]+\.[\w-]{22}$/.test(label))).toBe(true);
    const ids = new Set(labels);
    const headers = { 'content-type': 'application/json' };
    for (const id of ids) {
      const query = `sessionId=${encodeURIComponent(id)}`;
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
      const taken = await fetch(`${service.root}/messages?${query}`, { method: 'POST', headers, body });
      expect(taken.status, id).toBeGreaterThanOrEqual(400);
      const followed = await fetch(`${service.root}/sse`, {
        headers: { accept: 'text/event-stream', 'last-event-id': `${id}_1` },
      });
      expect(followed.status, id).toBeGreaterThanOrEqual(400);
      await Promise.all([taken.text(), followed.text()]);
    }
    for (const call of held.values()) await expectUntouched(call, new Map(), service.effects);
  });

  it('do not say who a caller is, nor what a task is for', async () => {
    const [url, other] = [SQLITE.url(), SQLITE.url()];
    const token = jwt({ iss: 'https://idp', sub: 'ann' });
    await heldOn(url, await started(url, encrypt), token);
    // The same caller under another secret: what could be guessed is another name there.
    await heldOn(other, await started(other, encrypt, OLD_SECRET), token);
    const digests = async (of: string): Promise<Set<string>> =>
      new Set([...(await recordsIn(of)).keys()].map((key) => /\.([\w-]{22})/.exec(key)?.[1] ?? key));
    const [here, there] = [await digests(url), await digests(other)];
    expect([...here].filter((digest) => there.has(digest))).toEqual([]);
    const principal = JSON.stringify(['https://idp', 'ann', 'the-one-client']);
    const guesses = [principal, JSON.stringify(principal)].map((text) =>
      createHash('sha256').update(text).digest('base64url').slice(0, 16),
    );
    const keys = [...(await recordsIn(url)).keys()].join('\n');
    for (const guess of [...guesses, 'room', 'ann', 'hold']) expect(keys).not.toContain(guess);
  });
});

describe('the values of records, encrypted', () => {
  it('tell nothing of a call on any wire', async () => {
    const url = SQLITE.url();
    const token = jwt({ iss: 'https://idp', sub: 'ann-the-caller' });
    const held = await heldOn(url, await started(url, true), token);
    const as = (call: Held): Promise<string> => call.finish();
    for (const call of held.values()) await as(call);
    const text = [...(await recordsIn(url)).values()].join('\n');
    for (const told of [WORD, QUESTION, 'answered', 'ann-the-caller', 'elicitation', 'tools/call'])
      expect(text).not.toContain(told);
  });
});

describe('what a call wrote', () => {
  it.each(WIRES)("is over with its ttl, and with streamLife on a session's stream ($name)", async (wire) => {
    const url = SQLITE.url();
    const life = 20_000;
    const options = { store: await openStore(url), ttl: life, limits: { streamLife: life } };
    const service = await serve('shop', options);
    ends.push(() => service.close());
    const held = await wire.begin({ root: service.root });
    ends.push(() => held.close());
    await held.finish();
    const telling = [...(await recordsIn(url))].filter(([, value]) => /the-callers-own|answered/.test(value));
    expect(telling.length).toBeGreaterThan(0);
    const late = telling.filter(([key]) => (readName(key)?.expires ?? 0) > Date.now() + life);
    expect(late).toEqual([]);
  });
});

describe('who knows the ids of an anonymous caller', () => {
  it('is that caller: why no name holds one', async () => {
    const url = SQLITE.url();
    const service = await started(url, true);
    const tasks = WIRES.find(({ name }) => name === '2026-07-28, tasks') as (typeof WIRES)[number];
    const as: As = { root: service.root };
    const came = await tryAll(await tasks.begin(as), as);
    expect(came.get('reads it')).toContain(QUESTION);
  });
});
