/** What suspended calls may take of this process's memory, where nothing else is given to keep them in. */
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { LIMIT } from '../fixtures/frozen.ts';
import { textOfRecord } from '../fixtures/keyv-parts.ts';
import { call, HEADERS, inSession, Peer, answer as reply } from '../security/peer.ts';
import { accept, messagesIn, post, type RawReply, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { Reader } from './reader.ts';

let served: Served | undefined;
afterEach(async () => served?.close());

const WORD = 'x'.repeat(10_000);

async function start(limits: { storedBytes: number; callerStoredBytes: number }) {
  const kept = new Map<string, string>();
  const options = { secrets: [SECRET], store: new Keyv({ store: kept }), ...tuned(limits) };
  served = await serveHere(() => buildServer(() => {}), options);
  const { url, log } = served;
  const headers = (caller: string | undefined) =>
    caller === undefined ? {} : { headers: { authorization: `Bearer ${caller}` } };
  const args = { word: WORD };
  return {
    url,
    log,
    ask: (caller?: string) => post(url, { tool: 'echo', args, ...headers(caller) }),
    answer: ({ state, keys }: RawReply, caller?: string) =>
      post(url, { tool: 'echo', args, state, responses: accept(keys, { name: 'ann' }), ...headers(caller) }),
    bytes: () => [...kept.values()].reduce((sum, record) => sum + textOfRecord(record).length, 0),
  };
}

const errorOf = ({ message }: RawReply): unknown => message.error;

describe('the bytes of events in memory', () => {
  it('are bounded for strangers, however many calls end in however many sessions', async () => {
    const { url, bytes } = await start({ storedBytes: 400_000, callerStoredBytes: 100_000 });
    const word = 'x'.repeat(20_000);
    for (let session = 0; session < 5; session += 1) {
      const peer = await inSession(url, '2025-06-18');
      for (let nth = 0; nth < 6; nth += 1) {
        const stream = await peer.stream(call(`c${nth}`, 'echo', { word }));
        const ask = await stream.next(({ method }) => method === 'elicitation/create');
        expect((await peer.post(reply(ask.id, { name: 'Ann' }))).status).toBe(202);
        expect(JSON.stringify(await stream.next(({ id }) => id === `c${nth}`))).toContain(`${word} Ann`);
      }
    }
    // Of 600,000 characters that these results have.
    await expect.poll(bytes).toBeLessThan(260_000);
  });
});

describe('what the streams of a workspace leave in a shared store', () => {
  it('is bounded for strangers who open them and go away', async () => {
    const flaky = flakyStore();
    const options = { store: flaky.store, secrets: [SECRET], ...tuned({ callerStoredBytes: 20_000 }) };
    served = await serveHere(() => buildServer(() => {}), options);
    const here = new URL('/mcp/here', served.url);
    const statuses = new Set<number>();
    for (let nth = 0; nth < 150; nth += 1) {
      const gone = new AbortController();
      const stream = await fetch(here, { headers: { accept: 'text/event-stream' }, signal: gone.signal });
      statuses.add(stream.status);
      gone.abort();
    }
    expect(statuses).toContain(429);
    const before = flaky.size;
    for (let nth = 0; nth < 20; nth += 1)
      await fetch(here, { headers: { accept: 'text/event-stream' } }).then((reply) => reply.body?.cancel());
    expect(flaky.size).toBeLessThanOrEqual(before + 2);
  });
});

describe('the bytes of answers to calls of another process', () => {
  it('are bounded, and the process of the calls takes them', async () => {
    const { store } = flakyStore();
    const options = { store, secrets: [SECRET] };
    const limits = { callerStoredBytes: 100_000 };
    const other = await serveHere(() => buildServer(() => {}), { ...options, ...tuned(limits) });
    try {
      served = await serveHere(() => buildServer(() => {}), options);
      const peer = await inSession(served.url, '2025-11-25');
      const answered: number[] = [];
      for (let nth = 0; nth < 6; nth += 1) {
        const stream = await peer.stream(call(`c${nth}`, 'one'));
        const { id } = await stream.next(({ method }) => method === 'elicitation/create');
        const given = reply(id, { name: 'x'.repeat(30_000) });
        const { status } = await new Peer(other.url, peer.headers).post(given);
        answered.push(status);
        if (status !== 202) expect((await peer.post(given)).status).toBe(202);
        expect(JSON.stringify(await stream.next((message) => message.id === `c${nth}`))).toContain('Hello x');
      }
      expect(answered).toEqual([202, 202, 202, 429, 429, 429]);
    } finally {
      await other.close();
    }
  });
});

describe('a call whose caller has no room for more', () => {
  it.each(['2025-06-18', '2025-11-25'])(
    'is gone on with where its connection breaks (%s)',
    async (version) => {
      const { url, ask } = await start({ storedBytes: 1_000_000, callerStoredBytes: 35_000 });
      const peer = await inSession(url, version);
      const broken = new AbortController();
      const response = await fetch(url, {
        method: 'POST',
        headers: { ...HEADERS, ...peer.headers },
        body: JSON.stringify(call('c', 'one')),
        signal: broken.signal,
      });
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      while (!text.includes('elicitation/create')) text += (await reader?.read())?.value ?? '';
      broken.abort();
      const { id } = messagesIn(text).find(({ method }) => method === 'elicitation/create') ?? {};
      const last = [...text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? '';
      const asked: RawReply[] = [];
      do asked.push(await ask());
      while (errorOf(asked.at(-1) as RawReply) === undefined);
      const again = await fetch(url, {
        headers: { ...peer.headers, accept: 'text/event-stream', 'last-event-id': last },
      });
      expect((await peer.post(reply(id, { name: 'Ann' }))).status).toBe(202);
      expect(JSON.stringify(await new Reader(again).next((message) => message.id === 'c'))).toContain(
        'Hello Ann',
      );
    },
  );
});

describe('the bytes of suspended calls in memory', () => {
  it('are bounded for one caller, and strangers are one', async () => {
    const { ask, answer, bytes, log } = await start({ storedBytes: 1_000_000, callerStoredBytes: 35_000 });
    const held = [await ask(), await ask(), await ask()];
    expect(held.map(errorOf)).toEqual([undefined, undefined, undefined]);
    for (let nth = 0; nth < 20; nth += 1) expect(errorOf(await ask())).toEqual(LIMIT);
    expect(log.text).toContain('its part of limits.storedBytes');
    expect(bytes()).toBeLessThan(40_000);
    // Known callers have a part of their own, each.
    expect(errorOf(await ask('ann'))).toBeUndefined();
    expect(errorOf(await ask('bob'))).toBeUndefined();
    // Suspended calls continue above the limit; ended calls make room.
    for (const call of held) expect(textOf(await answer(call))).toContain(`${WORD} ann`);
    expect(errorOf(await ask())).toBeUndefined();
  });

  it('are bounded for all', async () => {
    const { ask, answer, bytes, log } = await start({ storedBytes: 50_000, callerStoredBytes: 35_000 });
    const callers = Array.from({ length: 12 }, (_, nth) => `caller${nth}`);
    const replies = await Promise.all(callers.map((caller) => ask(caller)));
    const held = replies.filter((reply) => errorOf(reply) === undefined);
    expect(held).toHaveLength(4);
    expect(log.text).toContain('limits.storedBytes');
    expect(bytes()).toBeLessThan(60_000);
    const [first] = held;
    const caller = callers[replies.indexOf(first as RawReply)];
    expect(textOf(await answer(first as RawReply, caller))).toContain(' ann');
    expect(errorOf(await ask('newcomer'))).toBeUndefined();
  });

  it('of calls that are over are released first, and never those of suspended calls', async () => {
    const { ask, answer, bytes } = await start({ storedBytes: 1_000_000, callerStoredBytes: 60_000 });
    const first = await ask('ann');
    for (let nth = 0; nth < 20; nth += 1) {
      const call = await ask('ann');
      expect(errorOf(call)).toBeUndefined();
      expect(textOf(await answer(call, 'ann'))).toContain(' ann');
    }
    expect(bytes()).toBeLessThan(90_000);
    expect(textOf(await answer(first, 'ann'))).toContain(' ann');
  });
});
