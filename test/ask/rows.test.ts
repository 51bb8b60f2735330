/** The rows by which calls that wait for a person are found again, as older calls of them make room. */
import { expect, it } from 'vitest';
import { WaitingCalls } from '../../src/ask/waiting-calls.ts';
import { systemClock } from '../../src/base/values.ts';
import { type CallRecord, FORMAT, type OpenAsk } from '../../src/call/journal/entries.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { plainRecords } from '../../src/checkpoint/records.ts';

const TTL = 3_600_000;
const names = new Names('rows');
const expires = Date.now() + TTL;

function callOf(id: string, args: object): CallRecord {
  return {
    id: `${expires.toString(36)}.${id}~`,
    method: 'tools/call',
    params: { name: 'book', arguments: { ...args } },
    requestId: 1,
    principal: 'ann',
    revision: '2025-11-25',
    client: { capabilities: {}, info: { name: 'desk' }, protocolVersion: '2025-11-25' },
    created: expires - TTL,
    expires,
  };
}

function bench(bytes: { caller: number; outcomes: number }) {
  const store = new KeyvCallStore(undefined, systemClock, 10_000, {
    names,
    cipher: plainRecords('rows'),
    bytes: { all: 10_000_000, ...bytes },
  });
  const calls = new WaitingCalls({
    store,
    records: {
      insert: (name, value, ends, holder) =>
        store.insert(name, value, ends, holder === undefined ? {} : { holder }),
      get: (name) => store.get(name),
    },
    names: { guessable: (...parts) => [parts.join(' ')] },
    ttl: TTL,
    now: Date.now,
    urlOf: ({ id }) => id,
    server: () => 'booking',
  });
  const begin = async (id: string, args: object): Promise<CallRecord> => {
    const call = callOf(id, args);
    await store.insertEntry(call, 0, { type: 'called', format: FORMAT, call });
    await calls.opened(call, { person: 'ann', workspace: undefined, isPage: true });
    return call;
  };
  const end = (call: CallRecord): Promise<boolean> =>
    store.insertEntry(call, 1, { type: 'ended', response: { result: {} } });
  return { store, calls, begin, end };
}

async function listed(calls: WaitingCalls): Promise<string[]> {
  const ids: string[] = [];
  for await (const id of calls.of({ person: 'ann', roles: [] })) ids.push(id);
  return ids;
}

it('a call is found by an equal one, also where an earlier one has made room', async () => {
  const { store, calls, begin, end } = bench({ caller: 1_000_000, outcomes: 1 });
  const done = await begin('done', { to: 'Rome' });
  await end(done);
  const waiting = await begin('waiting', { to: 'Rome' });
  await end(await begin('other', { to: 'Oslo' }));
  expect(await store.read(done.id, 0)).toBeUndefined();
  expect(await calls.equal(waiting, undefined)).toContain(waiting.id);
  expect(await listed(calls)).toContain(waiting.id);
});

it('a call is in its person’s list behind hundreds that are over', async () => {
  const { calls, begin, end } = bench({ caller: 10_000_000, outcomes: 10_000 });
  const waiting = await begin('waiting', { to: 'Rome' });
  for (let nth = 0; nth < 450; nth += 1) {
    const call = await begin(`${nth}`, { nth });
    await end(call);
    await calls.sent(call);
  }
  expect(await listed(calls)).toEqual([waiting.id]);
});

it('rows take the room of the caller whose calls they hold', async () => {
  const { begin, end } = bench({ caller: 100_000, outcomes: 5 });
  const refused = (async () => {
    for (let nth = 0; nth < 10_000; nth += 1) await end(await begin(`${nth}`, { nth }));
  })();
  await expect(refused).rejects.toMatchObject({ code: 'limit' });
});

it('a call takes an answer without room, and no call begins', async () => {
  const { calls, begin } = bench({ caller: 100_000, outcomes: 5 });
  const waiting: CallRecord[] = [];
  const text = 'x'.repeat(1_000);
  const refused = (async () => {
    for (let nth = 0; nth < 10_000; nth += 1) waiting.push(await begin(`${nth}`, { nth, text }));
  })();
  await expect(refused).rejects.toMatchObject({ code: 'limit' });
  const ask = (key: string) => ({ key, question: '' }) as OpenAsk;
  const given = (day: string) => {
    const response = { result: { action: 'accept', content: { day } } };
    return { response, by: 'ann', route: 'page' as const, time: 1 };
  };
  expect(waiting.length).toBeGreaterThan(9);
  for (const call of waiting) expect(await calls.answer(call, ask('1'), given('Monday'))).toBe(true);
  // One that is as large as many calls is not written.
  const [call] = waiting as [CallRecord];
  const large = calls.answer(call, ask('2'), given('Monday'.repeat(10_000)));
  await expect(large).rejects.toMatchObject({ code: 'limit' });
  await expect(begin('last', { text })).rejects.toMatchObject({ code: 'limit' });
});

it('an equal call is found behind any number of those that are over', async () => {
  const { calls, begin, end } = bench({ caller: 1_000_000, outcomes: 1_000 });
  for (let nth = 0; nth < 120; nth += 1) {
    const call = await begin(`${nth}`, { to: 'Rome' });
    expect(await calls.equal(call, undefined)).toContain(call.id);
    await end(call);
  }
});
