/** Secrets: which are refused, how long a derived key seals, and where they are asked for. */
import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { KeyRing } from '../../src/checkpoint/key-ring.ts';
import { Sealer } from '../../src/checkpoint/sealed.ts';
import { SecretSource } from '../../src/checkpoint/secret-source.ts';
import { checkedSecrets } from '../../src/checkpoint/secrets.ts';
import { accept, post, textOf } from '../e2e/clients.ts';
import { OLD_SECRET, SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';

describe('a secret', () => {
  it.each([
    ['43 equal letters', 'a'.repeat(43)],
    ['one word over and over', 'password'.repeat(6)],
    ['almost all one letter', `${'a'.repeat(60)}bcd`],
    ['digits that go up', '11111111111122222222222233333333333'],
  ])('is refused where it can be guessed: %s', (_what, secret) => {
    expect(() => checkedSecrets([SECRET, secret])).toThrow(/secrets\[1\] can be guessed/);
  });

  it('is taken where it is random, however it is written', () => {
    for (let nth = 0; nth < 200; nth += 1) {
      const bytes = randomBytes(32);
      for (const encoding of ['base64url', 'hex', 'base64'] as const)
        checkedSecrets([bytes.toString(encoding)]);
    }
  });
});

const sealerOf = (ring: KeyRing): Sealer =>
  new Sealer({ ring, audience: 'test', maxLength: 10_000, now: () => 1_000 });
const saltOf = (token: string): string =>
  (JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString()) as { salt: string }).salt;

describe('a key that seals', () => {
  it('is derived anew each hour, and by each process; all open what any sealed', async () => {
    let now = 0;
    const rings = [new KeyRing([SECRET], () => now), new KeyRing([OLD_SECRET, SECRET], () => now)];
    const [here, there] = rings.map(sealerOf);
    if (here === undefined || there === undefined) throw new Error('two rings were made');
    const first = here.seal('state', { word: 1 }, 2_000);
    now = 3_599_999;
    const second = here.seal('state', { word: 2 }, 2_000);
    now = 3_600_000;
    const third = here.seal('state', { word: 3 }, 2_000);
    expect(saltOf(second)).toBe(saltOf(first));
    expect(saltOf(third)).not.toBe(saltOf(first));
    expect(saltOf(sealerOf(new KeyRing([SECRET])).seal('state', {}, 2_000))).not.toBe(saltOf(third));
    for (const [nth, token] of [first, second, third].entries())
      expect(await there.open('state', token)).toEqual({ word: nth + 1 });
  });

  it('opens what each secret of one text sealed, with a comma or a line end between them', async () => {
    for (const text of [
      `${SECRET},${OLD_SECRET}`,
      `${SECRET}\n${OLD_SECRET}\n`,
      ` ${SECRET} , ${OLD_SECRET},`,
    ]) {
      const ring = new KeyRing([text]);
      expect(ring.current).toBe(new KeyRing([SECRET]).current);
      for (const secret of [SECRET, OLD_SECRET]) {
        const token = sealerOf(new KeyRing([secret])).seal('state', { word: 1 }, 2_000);
        expect(await sealerOf(ring).open('state', token)).toEqual({ word: 1 });
      }
    }
    // A passphrase may have commas.
    const phrase = `${SECRET}, and more`;
    expect(new KeyRing([phrase]).current).not.toBe(new KeyRing([SECRET]).current);
    expect(() => new KeyRing([','])).toThrow(/secrets\[0\] must be a string of at least 32/);
  });

  it('is derived from a salt of one length alone', async () => {
    const sealer = sealerOf(new KeyRing([SECRET]));
    const token = sealer.seal('state', { word: 1 }, 2_000);
    const [, ...rest] = token.split('.');
    const kid = (
      JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString()) as { kid: string }
    ).kid;
    for (const salt of [undefined, '', 7, 'x'.repeat(9_000), 'short']) {
      const header = Buffer.from(JSON.stringify({ alg: 'dir', enc: 'A256GCM', kid, salt })).toString(
        'base64url',
      );
      await expect(sealer.open('state', [header, ...rest].join('.'))).rejects.toMatchObject({
        code: 'bad-token',
      });
    }
  });
});

describe('secrets that are asked for', () => {
  function source(ask: () => Promise<readonly string[]>) {
    let now = 0;
    let asked = 0;
    const warned: string[] = [];
    const ring = new KeyRing(undefined, () => now);
    const counted = (): Promise<readonly string[]> => {
      asked += 1;
      return ask();
    };
    return {
      ring,
      warned,
      source: new SecretSource(
        counted,
        ring,
        (message) => warned.push(message),
        () => now,
      ),
      asked: () => asked,
      pass: (milliseconds: number) => {
        now += milliseconds;
      },
    };
  }

  it('are asked for once by all who wait, and again after five minutes', async () => {
    let secrets = [SECRET];
    const told = source(async () => secrets);
    expect(await Promise.all([1, 2, 3].map(() => told.source.ready()))).toEqual([true, true, true]);
    expect(told.asked()).toBe(1);
    const before = told.ring.current;
    secrets = [OLD_SECRET, SECRET];
    told.pass(299_999);
    await told.source.ready();
    expect(told.asked()).toBe(1);
    told.pass(1);
    await told.source.ready();
    await expect.poll(() => told.ring.current).not.toBe(before);
    expect(told.asked()).toBe(2);
  });

  it('are asked for when one is not known, and not more often than every ten seconds', async () => {
    const told = source(async () => [SECRET]);
    await told.source.ready();
    for (let nth = 0; nth < 5; nth += 1) await told.source.unknown();
    expect(told.asked()).toBe(1);
    told.pass(10_000);
    for (let nth = 0; nth < 5; nth += 1) await told.source.unknown();
    expect(told.asked()).toBe(2);
  });

  it('count from before while asking fails, or tells none that can be used', async () => {
    const answers: (() => Promise<readonly string[]>)[] = [
      async () => [SECRET],
      () => Promise.reject(new Error('the vault is sealed')),
      async () => ['short'],
      async () => [],
    ];
    const told = source(() => (answers.shift() ?? answers[0] ?? (async () => []))());
    await told.source.ready();
    const { current } = told.ring;
    for (let nth = 0; nth < 3; nth += 1) {
      told.pass(300_000);
      expect(await told.source.ready()).toBe(true);
      await expect.poll(() => told.warned.length).toBe(nth + 1);
      expect(told.ring.current).toBe(current);
    }
  });
});

describe('a handler whose secrets are asked for', () => {
  let served: Served | undefined;
  afterEach(async () => served?.close());

  it('refuses requests until it has them, and serves them from then on', async () => {
    let isUp = false;
    const secrets = async (): Promise<readonly string[]> => {
      if (!isUp) throw new Error('the vault is sealed');
      return [SECRET];
    };
    served = await serveHere(() => buildServer(() => {}), { secrets });
    const refused = await post(served.url, { tool: 'one' });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
    isUp = true;
    const begun = await post(served.url, { tool: 'one' });
    const done = await post(served.url, {
      tool: 'one',
      state: begun.state,
      responses: accept(begun.keys, { name: 'ann' }),
    });
    expect(textOf(done)).toBe('Hello ann');
    expect(served.log.text).toContain('the vault is sealed');
  });
});
