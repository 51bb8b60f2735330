/** A store that is closed: operations under way are waited for, later ones are refused. */
import { expect, it } from 'vitest';
import { MemoryBacking } from '../../src/checkpoint/backing.ts';
import { closable } from '../../src/checkpoint/call-store.ts';

class SlowBacking extends MemoryBacking {
  finish = (): void => {};
  readonly #slow = new Promise<void>((resolve) => {
    this.finish = resolve;
  });

  override async replace(name: string, value: unknown): Promise<void> {
    await this.#slow;
    await super.replace(name, value);
  }
}

it('waits for what was begun, and begins nothing more', async () => {
  const slow = new SlowBacking();
  const backing = closable(slow);
  const order: string[] = [];
  const written = backing.replace('a', 1, 1_000).then(() => order.push('written'));
  const closed = backing.close().then(() => order.push('closed'));
  await expect(backing.insert('b', 2, 1_000)).rejects.toMatchObject({ code: 'closed' });
  await expect(backing.get('a')).rejects.toMatchObject({ code: 'closed' });
  slow.finish();
  await Promise.all([written, closed]);
  expect(order).toEqual(['written', 'closed']);
  expect(await slow.get('a')).toBe(1);
  expect(await slow.get('b')).toBeUndefined();
});

it('closes although an operation fails', async () => {
  const failing = new MemoryBacking();
  failing.get = () => Promise.reject(new Error('down'));
  const backing = closable(failing);
  await expect(backing.get('a')).rejects.toThrow('down');
  const read = backing.get('a');
  await backing.close();
  await expect(read).rejects.toThrow('down');
});

it('reads no further page of a list', async () => {
  const listing = new MemoryBacking();
  for (const name of ['a', 'b', 'c']) await listing.insert(`${name}:0`, { type: 'called' }, 1_000);
  const backing = closable(listing);
  const listed: string[] = [];
  const reading = (async () => {
    for await (const { key } of backing.keys()) {
      listed.push(key);
      await backing.close();
    }
  })();
  await expect(reading).rejects.toMatchObject({ code: 'closed' });
  expect(listed).toHaveLength(1);
  await expect(
    backing
      .firstEntries(() => {})
      [Symbol.asyncIterator]()
      .next(),
  ).rejects.toMatchObject({
    code: 'closed',
  });
});
