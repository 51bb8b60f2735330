/** Which records of finished calls go, where a caller or all together have too many. */
import { expect, it } from 'vitest';
import { type ByteLimits, HeldBytes } from '../../src/checkpoint/held-bytes.ts';

const ROOMY: ByteLimits = { all: 1_000_000, caller: 1_000_000, outcomes: 1_000 };

function start(limits: Partial<ByteLimits>) {
  const evicted: string[] = [];
  const held: HeldBytes = new HeldBytes(
    { ...ROOMY, ...limits },
    ({ call }) => {
      evicted.push(call.id);
      held.drop(call.id);
    },
    () => 0,
    0,
  );
  const add = (id: string, principal: string | undefined, bytes: number): void =>
    held.add({ id, expires: 1, ...(principal !== undefined && { principal }) }, 0, bytes);
  const end = (id: string, principal: string | undefined, bytes = 100): void => {
    add(id, principal, bytes);
    held.finish(id);
  };
  return { held, evicted, add, end };
}

it('ends that exceed the share of their caller let its oldest go, and the newest stays', () => {
  const { evicted, end } = start({ caller: 25_000 });
  end('ann', 'ann', 20_000);
  for (let nth = 0; nth < 4; nth += 1) end(`stranger-${nth}`, undefined, 20_000);
  end('large', undefined, 40_000);
  expect(evicted).toEqual(['stranger-0', 'stranger-1', 'stranger-2', 'stranger-3']);
});

it('no number of a stranger’s calls costs a known caller an outcome', () => {
  const { evicted, end } = start({ outcomes: 3 });
  end('ann', 'ann');
  for (let nth = 0; nth < 5; nth += 1) end(`stranger-${nth}`, undefined);
  expect(evicted).toEqual(['stranger-0', 'stranger-1']);
});

it('where all together lack room, strangers make it before known callers', () => {
  const { held, evicted, end } = start({ all: 3_000 });
  end('ann', 'ann', 500);
  end('stranger', undefined, 500);
  held.makeRoom({ id: 'bob', principal: 'bob', expires: 1 }, 600);
  expect(evicted).toEqual(['stranger']);
});

it('calls that are not over stay, and so do sessions in which nothing ended', () => {
  const { held, evicted, add, end } = start({ outcomes: 1 });
  add('open', 'ann', 100);
  held.add({ id: 'session', principal: 'ann', expires: 1 }, 'state', 100);
  held.finish('session');
  end('first', 'ann');
  end('second', 'ann');
  expect(evicted).toEqual(['first']);
});
