/** Work that is ready at once leaves others their turn of the event loop. */

import { afterEach, expect, it, vi } from 'vitest';
import { LoopTurns } from '../../src/base/values.ts';
import { countTurns } from '../loop-turns.ts';

/** The turns in which pieces of work are done, in their order; each takes such a share of one. */
async function turnsOf(shares: readonly number[]): Promise<number[]> {
  const counted = countTurns();
  const turns = new LoopTurns();
  const done: { nth: number; turn: number }[] = [];
  await Promise.all(
    shares.map((share, nth) => turns.next(share).then(() => done.push({ nth, turn: counted.now }))),
  );
  counted.stop();
  expect(done.map(({ nth }) => nth)).toEqual([...shares.keys()]);
  return done.map((piece) => piece.turn);
}

it.each([
  [
    [1, 1, 1],
    [0, 1, 2],
  ],
  [
    [0.25, 0.25, 0.25, 0.25, 0.25],
    [0, 0, 0, 0, 1],
  ],
  [
    [0.5, 1, 0.5, 0.5],
    [0, 1, 2, 2],
  ],
])('of which pieces of %j are done in turns %j', async (shares, wanted) => {
  expect(await turnsOf(shares)).toEqual(wanted);
});

it('takes one piece of each owner after the other', async () => {
  const turns = new LoopTurns();
  const done: string[] = [];
  await Promise.all(
    ['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1'].map((piece) =>
      turns.next(0.5, piece[0]).then(() => done.push(piece)),
    ),
  );
  expect(done).toEqual(['a1', 'a2', 'a3', 'b1', 'c1', 'a4', 'b2']);
});

it('leaves no turn half empty for what does not fit into it', async () => {
  const turns = new LoopTurns();
  const done: string[] = [];
  const pieces = [
    ['a1', 1],
    ['b1', 0.5],
    ['a2', 1],
    ['b2', 0.5],
    ['b3', 0.5],
  ] as const;
  await Promise.all(pieces.map(([piece, share]) => turns.next(share, piece[0]).then(() => done.push(piece))));
  expect(done).toEqual(['a1', 'b1', 'b2', 'a2', 'b3']);
});

afterEach(() => vi.unstubAllGlobals());

it('does not wait for another request where each request has timers of its own', async () => {
  vi.stubGlobal('navigator', { userAgent: 'Cloudflare-Workers' });
  expect(await turnsOf([1, 1, 0.5])).toEqual([1, 1, 1]);
});
