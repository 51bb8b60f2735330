/** An attacker who reads the log at its most verbose: it holds no id or token that opens anything, and no content. */
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { SECRET } from '../e2e/harness.ts';
import { SQLITE } from '../e2e/services.ts';
import { jwt, QUESTION, serve, WORD } from './service.ts';
import { tryAll, WIRES } from './wires.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

describe('the log of a service', () => {
  it.each(WIRES)('shows no id or token that opens a call, after every attempt ($name)', async (wire) => {
    const service = await serve('shop', { store: await openStore(SQLITE.url()) });
    ends.push(() => service.close());
    const [ann, bob] = ['ann', 'bob'].map((sub) => jwt({ iss: 'https://idp', sub }));
    const held = [];
    for (const token of [ann, undefined]) {
      const call = await wire.begin({ root: service.root, ...(token !== undefined && { token }) });
      ends.push(() => call.close());
      await tryAll(call, { root: service.root, token: bob ?? '' });
      held.push(call);
    }
    // A call that no client holds any more, and one that is taken over elsewhere.
    for (const call of held) await call.finish();
    await service.close();
    expect(service.log.lines.length).toBeGreaterThan(0);
    for (const { names } of held) for (const name of names) expect(service.log.text).not.toContain(name);
    for (const told of [WORD, QUESTION, 'forged', SECRET, ann, bob])
      expect(service.log.text).not.toContain(told);
  });

  it('calls a call by its label, which its operator can look up', async () => {
    const service = await serve('shop', { store: await openStore(SQLITE.url()) });
    ends.push(() => service.close());
    const tasks = WIRES.find(({ name }) => name === '2026-07-28, tasks') as (typeof WIRES)[number];
    const call = await tasks.begin({ root: service.root });
    await call.attempts['reads it']?.({ root: service.root, token: 'somebody-else' });
    expect(service.log.text).toMatch(/task [0-9a-z]+\.[\w-]{22} does not belong to this caller/);
  });
});
