/** Patched functions behave as before outside of calls and inside of steps. */
import nodeCrypto, { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';

const RealDate = Date;
const { now: realNow } = Date;
const old = new Date(0);

await import('../../src/record/index.ts');
const { MemoryStore, start, suspended, workbench } = await import('../call/bench.ts');

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describe('outside of calls', () => {
  it('a Date is a Date', () => {
    expect(Date).not.toBe(RealDate);
    expect(Date.prototype).toBe(RealDate.prototype);
    expect([old instanceof Date, new Date() instanceof RealDate, old.constructor === Date]).toEqual([
      true,
      true,
      true,
    ]);
    expect([Date.name, Date.length]).toEqual([RealDate.name, RealDate.length]);
    expect(Object.getOwnPropertyNames(Date).sort()).toEqual(Object.getOwnPropertyNames(RealDate).sort());
    expect(Object.keys(Date)).toEqual([]);
    expect(Object.prototype.toString.call(new Date())).toBe('[object Date]');
  });

  it('is made of all that it was made of, and told of as before', () => {
    expect(new Date(5).getTime()).toBe(5);
    expect(new Date(2020, 1, 29).getDate()).toBe(29);
    expect(new Date('2020-02-29T00:00:00Z').toISOString()).toBe('2020-02-29T00:00:00.000Z');
    expect(new Date(new Date(7)).getTime()).toBe(7);
    // Given, though undefined: that is an invalid date, not the present one.
    expect(new Date(undefined as unknown as number).getTime()).toBeNaN();
    expect([Date.UTC(1970, 0, 2), Date.parse('1970-01-02')]).toEqual([86_400_000, 86_400_000]);
    expect(RealDate.parse(String((Date as unknown as () => string)()))).toBeGreaterThan(realNow() - 5_000);
    expect(Math.abs(Date.now() - realNow())).toBeLessThan(1_000);
    expect(Math.abs(Date.parse(new Date().toISOString()) - realNow())).toBeLessThan(1_000);
  });

  it('a class may extend Date', () => {
    class Day extends Date {
      get day(): string {
        return this.toISOString().slice(0, 10);
      }
    }
    expect(new Day(0).day).toBe('1970-01-01');
    expect(new Day()).toBeInstanceOf(Day);
    expect(new Day()).toBeInstanceOf(RealDate);
  });

  it('random values are random', () => {
    const draws = [randomUUID, nodeCrypto.randomUUID, () => crypto.randomUUID()];
    for (const draw of draws) {
      expect(draw()).toMatch(UUID);
      expect(draw()).not.toBe(draw());
    }
    expect(nodeCrypto.randomUUID({ disableEntropyCache: true })).toMatch(UUID);
    expect(Math.random()).not.toBe(Math.random());
  });
});

describe('inside of a call', () => {
  it('what is drawn is in the journal, outside of steps only', async () => {
    const store = new MemoryStore();
    const drawn: unknown[] = [];
    const { engine } = workbench(
      async ({ elicit, step }) => {
        drawn.push(
          Date.now(),
          Date.parse(new Date().toISOString()),
          Math.random(),
          randomUUID(),
          crypto.randomUUID(),
        );
        drawn.push(nodeCrypto.randomUUID(), RealDate.parse((Date as unknown as () => string)()));
        await step('inside', () => [Date.now(), Math.random(), randomUUID()]);
        await elicit('?');
      },
      { store },
    );
    suspended(await start(engine));
    const texts = [...store.entries.values()];
    const checkpoint = JSON.parse(texts.at(-1) ?? '').checkpoint;
    const kept = Object.entries<unknown[]>(checkpoint.drawn);
    const values = kept.flatMap(([, inner]) => inner);
    // Date() tells no milliseconds.
    expect(values.slice(0, -1)).toEqual(drawn.slice(0, -1));
    expect(Math.floor(Number(values.at(-1)) / 1_000) * 1_000).toBe(drawn.at(-1));
    for (const [place] of kept) expect(place).toMatch(/^(now|random|uuid) patches\.test\.ts:\d+:\d+~/);
  });
});
