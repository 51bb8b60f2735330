/**
 * A caller who got hold of another's ids and tokens: on no wire can it read, answer, cancel, list, subscribe to or
 * follow a call that is not its own. Two users of one OAuth client are two callers.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { SQLITE } from '../e2e/services.ts';
import { some } from '../short.ts';
import { jwt, type Service, serve } from './service.ts';
import { expectUntouched, tryAll, WIRES } from './wires.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function started(options: AwaitOptions = {}): Promise<Service> {
  const service = await serve('shop', { store: await openStore(SQLITE.url()), ...options });
  ends.push(() => service.close());
  return service;
}

const PAIRS: readonly { readonly name: string; readonly one?: string; readonly other?: string }[] = [
  {
    name: 'two users of one client, with JWTs',
    one: jwt({ iss: 'https://idp', sub: 'ann', client_id: 'app' }),
    other: jwt({ iss: 'https://idp', sub: 'bob', client_id: 'app' }),
  },
  {
    name: 'users of one name at two issuers',
    one: jwt({ iss: 'https://idp', sub: 'ann' }),
    other: jwt({ iss: 'https://other', sub: 'ann' }),
  },
  {
    name: 'two users of one client, with opaque tokens',
    one: 'opaque-token-of-ann',
    other: 'opaque-token-of-bob',
  },
  { name: 'a known caller, and one who is nobody', one: jwt({ iss: 'https://idp', sub: 'ann' }) },
];

for (const { name, one, other } of some(PAIRS, 2)) {
  describe(name, () => {
    it.each(WIRES)('$name', async (wire) => {
      const service = await started();
      const as = (token: string | undefined) => ({
        root: service.root,
        ...(token !== undefined && { token }),
      });
      const held = await wire.begin(as(one));
      ends.push(() => held.close());
      await expectUntouched(held, await tryAll(held, as(other)), service.effects);
    });
  });
}

describe('one user, whose token was renewed', () => {
  it.each(WIRES)('continues with a JWT of the same issuer and subject ($name)', async (wire) => {
    const service = await started();
    const claims = { iss: 'https://idp', sub: 'ann' };
    const held = await wire.begin({ root: service.root, token: jwt({ ...claims, jti: '1' }) });
    ends.push(() => held.close());
    const came = await tryAll(held, { root: service.root, token: jwt({ ...claims, jti: '2' }) });
    expect([...came.values()].join('\n')).toMatch(/the-callers-own|forged| 202|202 /);
  });
});
