/** Messages that somebody who can write to the relay sends again, to others, or out of order. */
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyRing } from '../../src/checkpoint/key-ring.ts';
import { Sealer } from '../../src/checkpoint/sealed.ts';
import { sealedMessages } from '../../src/relay/messages.ts';

const now = (): number => Date.now();
const secret = randomBytes(32).toString('base64url');
const ends = () =>
  sealedMessages(new Sealer({ ring: new KeyRing([secret]), audience: 'shop', maxLength: 10_000, now }), now);

describe('a message of the relay', () => {
  it('is received once, in whatever order and however often it arrives', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ by: fc.nat(2), place: fc.nat(40) }), { maxLength: 60 }),
        async (arrivals) => {
          const senders = [ends(), ends(), ends()];
          const receiver = ends();
          const texts = senders.map(({ seal }, by) =>
            Array.from({ length: 41 }, (_, nth) => seal({ by, nth }, 'receiver')),
          );
          const seen = new Set<string>();
          for (const { by, place } of arrivals) {
            const opened = receiver.open(texts[by]?.[place] ?? '', 'receiver');
            const name = `${by}.${place}`;
            if (seen.has(name)) await expect(opened).rejects.toMatchObject({ code: 'bad-token' });
            else expect(await opened).toEqual({ by, nth: place });
            seen.add(name);
          }
        },
      ),
      { numRuns: 40 },
    );
  });

  it('is refused by another process than the one it was sent to', async () => {
    const text = ends().seal({ hello: 'there' }, 'one');
    await expect(ends().open(text, 'two')).rejects.toMatchObject({ code: 'bad-token' });
    expect(await ends().open(text, 'one')).toEqual({ hello: 'there' });
  });

  it('is refused when it is far behind, since its place is not remembered any more', async () => {
    const sender = ends();
    const receiver = ends();
    const texts = Array.from({ length: 4_200 }, (_, nth) => sender.seal({ nth }, 'receiver'));
    for (const text of texts.slice(1)) await receiver.open(text, 'receiver');
    for (const text of [texts[0], texts[1], texts[4_000]])
      await expect(receiver.open(text ?? '', 'receiver')).rejects.toMatchObject({ code: 'bad-token' });
  });
});
