/** Which of the kept instances are closed where there are too many. */
import { describe, expect, it } from 'vitest';
import { KeptInstances } from '../../src/host/kept.ts';

function keeping(most: number) {
  const kept = new KeptInstances({ idle: undefined, most });
  const closed: string[] = [];
  const use = async (key: string, principal?: string) => {
    const open = async () => ({ close: () => closed.push(key) });
    const lease = await kept.lease(key, { outside: {}, isCall: false, principal } as never, open as never);
    lease.close();
    // An instance is closed once it is open.
    await Promise.resolve();
  };
  return { closed, use };
}

describe('kept instances', () => {
  it('of known callers stay, however many those of strangers are', async () => {
    const { closed, use } = keeping(3);
    await use('desk', 'alice');
    for (let nth = 0; nth < 10; nth += 1) await use(`strange ${nth}`);
    expect(closed).toEqual(Array.from({ length: 8 }, (_, nth) => `strange ${nth}`));
    // A stranger who uses it, too, does not make it a stranger's.
    await use('desk');
    await use('strange 10');
    await use('strange 11');
    expect(closed).not.toContain('desk');
    await use('phone', 'bob');
    await use('tablet', 'bob');
    await use('strange 12');
    expect(closed.slice(-3)).toEqual(['strange 10', 'strange 11', 'strange 12']);
  });

  it('of a known caller go for its own', async () => {
    const { closed, use } = keeping(3);
    await use('desk', 'alice');
    for (let nth = 0; nth < 5; nth += 1) await use(`${nth}`, 'bob');
    expect(closed).toEqual(['0', '1', '2']);
  });

  it('are closed least recently used first', async () => {
    const { closed, use } = keeping(2);
    for (const key of ['a', 'b', 'a', 'c']) await use(key, 'alice');
    expect(closed).toEqual(['b']);
  });
});
