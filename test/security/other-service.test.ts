/**
 * Another service on the same store, with its own secret, its own audience, or both: it finds nothing of this one,
 * whatever it got hold of, and takes nothing up when this one dies. With the same of both it is the same service.
 */
import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { OLD_SECRET, SECRET } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { SHORT, some } from '../short.ts';
import { jwt, type Service, serve, WORD } from './service.ts';
import { expectUntouched, type Held, tryAll, WIRES } from './wires.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function started(
  name: string,
  url: string,
  secret: string,
  audience: string,
  encrypt: boolean,
): Promise<Service> {
  const service = await serve(name, { store: await openStore(url), secrets: [secret], audience, encrypt });
  ends.push(() => service.close());
  return service;
}

const begun = async (held: Promise<Held>): Promise<Held> => {
  const call = await held;
  ends.push(() => call.close());
  return call;
};

const OTHERS = [
  { name: 'another secret', secret: OLD_SECRET, audience: 'shop' },
  { name: 'another audience', secret: SECRET, audience: 'bank' },
  { name: 'another secret and audience', secret: OLD_SECRET, audience: 'bank' },
];

for (const encrypt of some([false, true])) {
  describe(`a service with ${encrypt ? 'an encrypted' : 'a plain'} store, and one beside it with`, () => {
    for (const { name, secret, audience } of some(OTHERS)) {
      describe(name, () => {
        it.each(WIRES)('$name', async (wire) => {
          const url = SQLITE.url();
          const own = await started('shop', url, SECRET, 'shop', encrypt);
          const other = await started('other', url, secret, audience, encrypt);
          // One caller of both, known or not.
          for (const token of [undefined, jwt({ iss: 'https://idp', sub: randomUUID() })]) {
            const as = (root: string) => ({ root, ...(token !== undefined && { token }) });
            const held = await begun(wire.begin(as(own.root)));
            await expectUntouched(held, await tryAll(held, as(other.root)), other.effects);
          }
          expect(other.effects).toEqual([]);
          expect(own.effects).toHaveLength(2);
        });
      });
    }
  });
}

describe('with the same secret and audience', () => {
  it.skipIf(SHORT)('is the same service: every attempt is its caller’s own', async () => {
    const url = SQLITE.url();
    const own = await started('shop', url, SECRET, 'shop', true);
    const other = await started('other', url, SECRET, 'shop', true);
    const told: string[] = [];
    for (const wire of WIRES) {
      const held = await begun(wire.begin({ root: own.root }));
      const came = await tryAll(held, { root: other.root });
      if ([...came.values()].some((text) => text.includes(WORD) || text.includes('202')))
        told.push(wire.name);
    }
    expect(told).toEqual(WIRES.map(({ name }) => name));
  });
});

describe('a task whose service was killed', () => {
  it.each(some(OTHERS))(
    'is not run by a service with $name, whose tools are its own',
    async ({ secret, audience }) => {
      const url = SQLITE.url();
      const tasks = WIRES.find(({ name }) => name === '2026-07-28, tasks');
      const own = await started('shop', url, SECRET, 'shop', false);
      const other = await started('other', url, secret, audience, false);
      await begun((tasks as (typeof WIRES)[number]).begin({ root: own.root }));
      // Given up, so that it may be taken over without waiting for a lease.
      await own.close();
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      expect(other.handler.counters.takenOver).toBe(0);
      const heir = await started('heir', url, SECRET, 'shop', false);
      await expect.poll(() => heir.handler.counters.takenOver).toBe(1);
      const told = heir.log.lines.filter(({ message }) => message.startsWith('took over a call'));
      expect(told).toMatchObject([{ level: 'info', detail: { call: expect.any(String) } }]);
    },
  );
});
