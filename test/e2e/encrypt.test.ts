/** `encrypt: true`: what stands in the store tells nothing, and cannot be moved about. */
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { accept, legacy, post, type RawReply, textOf } from './clients.ts';
import { OLD_SECRET, SECRET, type Served, serveHere } from './harness.ts';
import { STORES } from './services.ts';

const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

async function serve(options: AwaitOptions): Promise<Served> {
  const served = await serveHere(() => buildServer(() => {}), {
    secrets: [SECRET],
    encrypt: true,
    limits: { frames: 0 },
    ...options,
  });
  open.push(served);
  return served;
}

const ask = (url: string): Promise<RawReply> => post(url, { tool: 'echo', args: { word: 'a-secret-word' } });
const answer = (url: string, { state, keys }: RawReply): Promise<RawReply> =>
  post(url, {
    tool: 'echo',
    args: { word: 'a-secret-word' },
    state,
    responses: accept(keys, { name: 'a-secret-name' }),
  });

for (const { name, down, url } of STORES) {
  it.skipIf(down)(`continues in another process, and when keys change (${name})`, async () => {
    const place = url();
    const first = await serve({ store: await openStore(place) });
    const second = await serve({ store: await openStore(place), secrets: [OLD_SECRET, SECRET] });
    const begun = await ask(first.url);
    expect(textOf(await answer(second.url, begun))).toBe('a-secret-word a-secret-name');
    // The outcome is read back by the first: its turn was taken.
    const third = await serve({ store: await openStore(place), secrets: [SECRET, OLD_SECRET] });
    expect(textOf(await answer(third.url, begun))).toBe('a-secret-word a-secret-name');
  });
}

describe('in the store', () => {
  /** Texts with Keyv 5, and with Keyv 6 objects that hold one. */
  const records = new Map<string, unknown>();
  const memory = (): Keyv => new Keyv({ store: records });
  afterEach(() => records.clear());

  it('stands nothing that a client sent, or that it was asked', async () => {
    const { url } = await serve({ store: memory() });
    const begun = await ask(url);
    await answer(url, begun);
    const client = await legacy(url);
    await client.tool('echo', { word: 'a-secret-word' });
    await client.close();
    expect(records.size).toBeGreaterThan(3);
    const text = JSON.stringify([...records]);
    for (const told of ['secret', 'echo', 'elicit', 'name', 'tools/call', 'checkpoint']) {
      expect(text).not.toContain(told);
    }
    const plain = await serve({ store: memory(), encrypt: false });
    await ask(plain.url);
    expect(JSON.stringify([...records])).toContain('a-secret-word');
  });

  it('stands no record in the place of another', async () => {
    const { url, log } = await serve({ store: memory() });
    const [one, other] = [await ask(url), await ask(url)];
    const [first, second] = [...records.keys()].filter((key) => key.endsWith(':0'));
    if (first === undefined || second === undefined) throw new Error('two calls were begun');
    const taken = records.get(second) ?? '';
    const plain = JSON.stringify({ value: { type: 'suspended' } });
    records.set(first, taken);
    records.set(second, typeof taken === 'string' ? plain : { value: plain });
    for (const begun of [one, other]) {
      const refused = await answer(url, begun);
      expect(JSON.parse(refused.text).error).toEqual(BAD_TOKEN);
    }
    expect(log.text).toContain('a record of another key');
    expect(log.text).toContain('refuses plain records');
  });

  it('cannot be read with another secret, nor by who does not expect it', async () => {
    const { url } = await serve({ store: memory() });
    const begun = await ask(url);
    const plain = await serve({ store: memory(), encrypt: false });
    expect((await answer(plain.url, begun)).text).toContain('Invalid or expired requestState');
    expect(plain.log.text).toContain('is encrypted: set encrypt: true');
  });
});
