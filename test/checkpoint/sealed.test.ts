import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyRing } from '../../src/checkpoint/key-ring.ts';
import { Sealer, stateTokens } from '../../src/checkpoint/sealed.ts';

const OLD = 'the old secret, long enough to be taken for one';
const NEW = 'the new secret, long enough to be taken for one';
const BINDING = { revision: 'r', method: 'tools/call', target: 't', args: 'a', principal: 'ann' };
const STATE = { callId: 'call', at: 3 };

function sealer(secrets: string[], options: { audience?: string; now?: () => number } = {}): Sealer {
  const { audience = 'here', now = () => 1_000 } = options;
  return new Sealer({ ring: new KeyRing(secrets), audience, maxLength: 100_000, now });
}

describe('a state token', () => {
  it('opens with its own binding, and with no other', async () => {
    const tokens = stateTokens(sealer([NEW]));
    const token = await tokens.seal(STATE, BINDING, 2_000);
    expect(await tokens.open(token, BINDING)).toEqual(STATE);
    for (const name of Object.keys(BINDING)) {
      await expect(tokens.open(token, { ...BINDING, [name]: 'other' })).rejects.toMatchObject({
        code: 'bad-token',
      });
    }
    const { principal: _principal, ...anonymous } = BINDING;
    await expect(tokens.open(token, anonymous)).rejects.toMatchObject({ code: 'bad-token' });
    const forAnybody = await tokens.seal(STATE, anonymous, 2_000);
    await expect(tokens.open(forAnybody, BINDING)).rejects.toMatchObject({ code: 'bad-token' });
  });

  it('that would be too long to be opened is not made', async () => {
    const tokens = stateTokens(sealer([NEW]));
    const call = { ...STATE, checkpoint: { format: 1, completions: ['x'.repeat(80_000)] } as never };
    await expect(tokens.seal(call, BINDING, 2_000)).rejects.toMatchObject({ code: 'limit' });
  });

  it('opens until it expires, for its own audience and purpose', async () => {
    let now = 1_000;
    const here = sealer([NEW], { now: () => now });
    const token = await here.seal('state', { a: 1 }, 2_000);
    await expect(sealer([NEW], { audience: 'there' }).open('state', token)).rejects.toMatchObject({
      code: 'bad-token',
    });
    await expect(here.open('session', token)).rejects.toMatchObject({ code: 'bad-token' });
    now = 2_000;
    expect(await here.open('state', token)).toEqual({ a: 1 });
    now = 2_001;
    await expect(here.open('state', token)).rejects.toMatchObject({ code: 'bad-token' });
  });

  it('outlives a change of keys as long as its key is in the ring', async () => {
    const before = await sealer([OLD]).seal('state', { a: 1 }, 2_000);
    const during = await sealer([OLD, NEW]).seal('state', { a: 2 }, 2_000);
    const after = await sealer([NEW, OLD]).seal('state', { a: 3 }, 2_000);
    expect(await sealer([NEW, OLD]).open('state', before)).toEqual({ a: 1 });
    expect(await sealer([OLD, NEW]).open('state', after)).toEqual({ a: 3 });
    for (const token of [before, during]) {
      await expect(sealer([NEW]).open('state', token)).rejects.toMatchObject({ code: 'bad-token' });
    }
    expect(await sealer([NEW]).open('state', after)).toEqual({ a: 3 });
  });

  it('says nothing of what is in it, and is another one each time', async () => {
    const here = sealer([NEW]);
    const tokens = await Promise.all([1, 2].map(() => here.seal('state', { secret: 'hunter2' }, 2_000)));
    expect(tokens[0]).not.toBe(tokens[1]);
    for (const token of tokens) {
      const parts = token.split('.').map((part) => Buffer.from(part, 'base64url').toString('latin1'));
      expect(parts.join()).not.toContain('hunter2');
    }
  });

  it('is refused after any damage', async () => {
    const here = sealer([NEW]);
    const token = await here.seal('state', { a: 1 }, 2_000);
    const damage = fc.oneof(
      fc
        .tuple(fc.nat(token.length - 1), fc.string({ minLength: 1, maxLength: 3 }))
        .map(([at, text]) => token.slice(0, at) + text + token.slice(at + 1)),
      fc.nat(token.length - 1).map((length) => token.slice(0, length)),
      fc.string({ minLength: 1 }).map((tail) => token + tail),
      fc.string(),
    );
    await fc.assert(
      fc.asyncProperty(
        damage.filter((text) => text !== token),
        async (damaged) => {
          await expect(here.open('state', damaged)).rejects.toMatchObject({ code: 'bad-token' });
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('is refused when it is no string, too long, or of another algorithm', async () => {
    const here = sealer([NEW]);
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.e30.`;
    for (const token of [undefined, null, 5, {}, [], '', 'x'.repeat(100_001), none]) {
      await expect(here.open('state', token)).rejects.toMatchObject({ code: 'bad-token' });
    }
  });
});
