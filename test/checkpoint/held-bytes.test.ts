/** Which records of finished calls go, where a caller or all together have too many. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { defined, systemClock } from '../../src/base/values.ts';
import { type CallRecord, CONTINUED, type Entry } from '../../src/call/journal/entries.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { type ByteLimits, HeldBytes } from '../../src/checkpoint/held-bytes.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { plainRecords } from '../../src/checkpoint/records.ts';
import { openStore } from '../../src/store.ts';
import { SQLITE } from '../e2e/services.ts';

const ROOMY: ByteLimits = { all: 1_000_000, caller: 1_000_000, outcomes: 1_000 };

function start(limits: Partial<ByteLimits>) {
  const evicted: string[] = [];
  const held: HeldBytes = new HeldBytes(
    { ...ROOMY, ...limits },
    ({ call }) => {
      evicted.push(call.id);
      held.drop(call.id);
    },
    () => 0,
    0,
  );
  const add = (id: string, principal: string | undefined, bytes: number): void =>
    held.add({ id, expires: 1, ...(principal !== undefined && { principal }) }, 0, bytes);
  const end = (id: string, principal: string | undefined, bytes = 100): void => {
    add(id, principal, bytes);
    held.finish(id);
  };
  return { held, evicted, add, end };
}

it('ends that exceed the share of their caller let its oldest go, and the newest stays', () => {
  const { evicted, end } = start({ caller: 25_000 });
  end('ann', 'ann', 20_000);
  for (let nth = 0; nth < 4; nth += 1) end(`stranger-${nth}`, undefined, 20_000);
  end('large', undefined, 40_000);
  expect(evicted).toEqual(['stranger-0', 'stranger-1', 'stranger-2', 'stranger-3']);
});

it('no number of a stranger’s calls costs a known caller an outcome', () => {
  const { evicted, end } = start({ outcomes: 3 });
  end('ann', 'ann');
  for (let nth = 0; nth < 5; nth += 1) end(`stranger-${nth}`, undefined);
  expect(evicted).toEqual(['stranger-0', 'stranger-1']);
});

it('where all together lack room, strangers make it before known callers', () => {
  const { held, evicted, end } = start({ all: 3_000 });
  end('ann', 'ann', 500);
  end('stranger', undefined, 500);
  held.makeRoom({ id: 'bob', principal: 'bob', expires: 1 }, 600);
  expect(evicted).toEqual(['stranger']);
});

it('calls that are not over stay, and so do sessions in which nothing ended', () => {
  const { held, evicted, add, end } = start({ outcomes: 1 });
  add('open', 'ann', 100);
  held.add({ id: 'session', principal: 'ann', expires: 1 }, 'state', 100);
  held.finish('session');
  end('first', 'ann');
  end('second', 'ann');
  expect(evicted).toEqual(['first']);
});

it('notifications of running calls leave a quarter of the room of their caller', async () => {
  const written: boolean[] = [];
  const names = new Names('here');
  const store = new KeyvCallStore(undefined, systemClock, 10_000, {
    names,
    cipher: plainRecords('here'),
    bytes: { all: 1_000_000, caller: 100_000, outcomes: 10 },
    written: (_call, _entry, _at, isKept) => written.push(isKept),
  });
  const expires = Date.now() + 60_000;
  const call = { id: `${expires.toString(36)}.call`, expires } as CallRecord;
  const messages = [{ data: 'y'.repeat(20_000) }];
  let kept = 0;
  for (let at = 0; at < 10; at += 1) {
    expect(await store.insertEntry(call, at, { type: 'notified', messages })).toBe(true);
    kept += JSON.stringify(await store.read(call.id, at)).length;
  }
  expect(kept).toBeLessThan(75_000);
  expect(written).toEqual([true, true, true, ...Array.from({ length: 7 }, () => false)]);
});

it('answers beside calls that wait have a quarter more, and a decline is always kept', async () => {
  const store = new KeyvCallStore(undefined, systemClock, 10_000, {
    names: new Names('here'),
    cipher: plainRecords('here'),
    bytes: { all: 10_000_000, caller: 1_000_000, outcomes: 10 },
  });
  const expires = Date.now() + 60_000;
  const holder = (nth: number) => ({ id: `${expires.toString(36)}.call${nth}${CONTINUED}`, expires });
  const kept = async (name: string, value: object): Promise<number> => {
    let count = 0;
    for (let nth = 0; nth < 200; nth += 1) {
      const call = holder(nth);
      const insert = store.insert(`${call.id}:${name}`, value, expires, { holder: call });
      const code = await insert.then(String, (error: { code: string }) => error.code);
      expect(['true', 'limit']).toContain(code);
      if (code === 'true') count += 1;
    }
    return count;
  };
  // Two bytes a letter.
  const answers = await kept('answer a', { text: '\u0416'.repeat(9_000) });
  expect(answers).toBeGreaterThan(60);
  expect(answers).toBeLessThan(70);
  expect(await kept('answer b', { action: 'decline' })).toBe(200);
});

it('every holder in this process’s own memory is counted, however many there are', () => {
  const { held, evicted } = start({ all: 60_000_000, caller: 60_000_000 });
  const count = 100_010;
  for (let nth = 0; nth < count; nth += 1) {
    const session = { id: `session-${nth}`, expires: 1 };
    held.makeRoom(session, 20);
    held.add(session, 'state', 20);
    held.finish(session.id);
  }
  expect([...held.calls].length + evicted.length).toBe(count);
});

it.each(['ann', undefined])(
  'long outcomes of %s that come in one moment leave a quarter of the share of strangers in a shared store, who get them all the same',
  async (principal) => {
    const written: [Entry['type'], unknown][] = [];
    const keyv = await openStore(SQLITE.url());
    const store = new KeyvCallStore(keyv, systemClock, 10_000, {
      names: new Names('here'),
      cipher: plainRecords('here'),
      bytes: { all: 100_000_000, caller: 4_000_000, outcomes: 1_000 },
      written: (_call, entry) => written.push([entry.type, entry.type === 'ended' && entry.response]),
    });
    const expires = Date.now() + 60_000;
    const calls = Array.from({ length: 20 }, (_, nth) => {
      const id = `${expires.toString(36)}.${randomUUID()}${nth}`;
      return { id, expires, ...defined({ principal }) } as CallRecord;
    });
    const response = { result: { content: [{ type: 'text', text: 'x'.repeat(1_000_000) }] } };
    for (const call of calls) await store.insertEntry(call, 0, { type: 'called', format: 1, call });
    for (const call of calls) await store.insertEntry(call, 1, { type: 'ended', response, when: 0 });
    const kept = await Promise.all(calls.map((call) => store.read(call.id, 1)));
    const isWhole = (entry: Entry | undefined): boolean => JSON.stringify(entry).length > 1_000_000;
    expect(kept.filter(isWhole)).toHaveLength(principal === undefined ? 2 : 20);
    expect(written.filter(([type]) => type === 'ended').map(([, told]) => told)).toEqual(
      calls.map(() => response),
    );
    await keyv.disconnect();
  },
);
