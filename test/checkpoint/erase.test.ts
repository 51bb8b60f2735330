/** A call is erased by a process that is killed between any two of its writes. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import type { CallRecord, Entry } from '../../src/call/journal/entries.ts';
import { Folding } from '../../src/call/journal/fold.ts';
import { CallBook } from '../../src/checkpoint/call-book.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { Names } from '../../src/checkpoint/names.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { SQLITE } from '../e2e/services.ts';

const STEPS = 4;
const KILLED = new Error('killed');

async function logOf(store: KeyvCallStore, id: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let entry = await store.read(id, 0); entry; entry = await store.read(id, entries.length))
    entries.push(entry);
  return entries;
}

describe.each(['', '~'])('a call whose id ends with "%s"', (end) => {
  it('is not continued, whichever write was the last, and can be erased again', async () => {
    const keyv = await openStore(SQLITE.url());
    const store = new KeyvCallStore(keyv, systemClock, 1_000);
    for (let writes = 0; ; writes += 1) {
      const expires = Date.now() + 60_000;
      const call: CallRecord = {
        id: `${expires.toString(36)}.${randomUUID()}${end}`,
        method: 'tools/call',
        params: { name: 'charge' },
        requestId: 1,
        revision: '2026-07-28',
        client: { capabilities: {}, info: { name: 'x', version: '1' }, protocolVersion: '2026-07-28' },
        created: Date.now(),
        expires,
      };
      await store.insertEntry(call, 0, { type: 'called', call, owner: 'one', when: 1 } as unknown as Entry);
      for (let nth = 1; nth <= STEPS; nth += 1)
        await store.insertEntry(call, nth, {
          type: 'completed',
          completion: { kind: 'step', path: `charge ${nth}`, result: nth },
        } as unknown as Entry);
      let left = writes;
      const dying = new Proxy(store, {
        get: (target, name) => {
          const own: unknown = Reflect.get(target, name, target);
          if (typeof own !== 'function') return own;
          const isWrite = ['insertEntry', 'replace', 'remove'].includes(String(name));
          return (...args: unknown[]): unknown => {
            if (isWrite && left === 0) return Promise.reject(KILLED);
            left -= Number(isWrite);
            return own.apply(target, args);
          };
        },
      });
      const entries = await logOf(store, call.id);
      const story = {
        call,
        entries,
        label: '',
        isTask: false,
        folded: new Folding(),
        status: 'running',
      } as const;
      const names = new Names('mcp-await');
      const died = await new CallBook(dying, names, systemClock)
        .erase(story)
        .catch((error: unknown) => error);
      const after = await logOf(store, call.id);
      // Whole, or gone, or one that says that it is over: a log that ends before its steps do would run them again.
      const isWhole = after.filter(({ type }) => type === 'completed').length === STEPS;
      expect(isWhole || after.length === 0 || after.some(({ type }) => type === 'cancelled')).toBe(true);
      await new CallBook(store, names, systemClock).erase(story);
      const rest = await logOf(store, call.id);
      expect(rest.filter(({ type }) => type !== 'cancelled')).toEqual([]);
      expect(await store.read(call.id, 2)).toBeUndefined();
      if (died === undefined) break;
      expect(died).toBe(KILLED);
    }
    await keyv.disconnect();
  });
});
