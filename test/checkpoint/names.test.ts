/** Which facts a record's name shows, and which it hides. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { KeyRing } from '../../src/checkpoint/key-ring.ts';
import { Names, readName } from '../../src/checkpoint/names.ts';

const ONE = 'the first secret of these tests, with more than 32 bytes';
const TWO = 'the other secret of these tests, with more than 32 bytes';
const ID = 'mfz0k3a1.4f0c9f4e-7c1f-4a53-9a0c-5d0c4f6e2b11';
const names = (audience: string, ...secrets: string[]): Names => new Names(audience, new KeyRing(secrets));

describe('the name of a record', () => {
  it('holds expiry and position, and nothing of the id', () => {
    const key = names('shop', ONE).key(`${ID}:12`);
    expect(key).toMatch(/^mcp-await:mfz0k3a1\.[\w-]{22}:12$/);
    expect(key).not.toContain('4f0c9f4e');
    expect(readName(key)).toEqual({
      label: names('shop', ONE).label(ID),
      expires: Number.parseInt('mfz0k3a1', 36),
      position: 12,
    });
    expect(readName(`some-namespace:${key}`)?.position).toBe(12);
    expect(readName('somebody else’s key')).toBeUndefined();
  });

  it('is the same under every secret, and another for every audience', () => {
    for (const name of [`${ID}:0`, `${ID}:beat`, `${ID}:in:abc`]) {
      expect(names('shop', TWO).key(name)).toBe(names('shop', ONE).key(name));
      expect(names('bank', ONE).key(name)).not.toBe(names('shop', ONE).key(name));
    }
  });

  it('of what a client made up is one that nothing is kept under', () => {
    expect(names('shop', ONE).key('../etc/passwd:3')).toMatch(/^mcp-await:0\.[\w-]{22}$/);
    expect(names('shop', ONE).key('')).toMatch(/^mcp-await:0\./);
  });
});

describe('a name for what can be guessed', () => {
  it('takes a secret: the sealing one’s first, and all others', () => {
    const [before] = names('shop', ONE).guessable('tasks', 'ann');
    expect(names('shop', TWO, ONE).guessable('tasks', 'ann')).toEqual([
      names('shop', TWO).guessable('tasks', 'ann')[0],
      before,
    ]);
    expect(before).not.toBe(names('bank', ONE).guessable('tasks', 'ann')[0]);
    expect(before).not.toBe(names('shop', ONE).guessable('tasks', null)[0]);
    const guesses = ['ann', '["shop","tasks","ann"]', JSON.stringify('ann')].map((guess) =>
      createHash('sha256').update(guess).digest('base64url'),
    );
    for (const guess of guesses) expect(guess.startsWith(before)).toBe(false);
  });
});
