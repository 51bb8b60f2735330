/** Lines come as they were written, in whatever pieces, and an unfinished one takes little more than its bytes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Lines } from '../../src/proxy/lines.ts';

describe('lines', () => {
  it('are the same in whatever pieces they come, and empty ones are counted', () => {
    const texts = fc.array(fc.constantFrom('', 'a', 'bé', 'x'.repeat(70_000), '\r'), { maxLength: 8 });
    const cuts = fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 20 });
    const property = fc.property(texts, cuts, (lines, sizes) => {
      const heard: string[] = [];
      const own = new Lines(80_000, (line) => heard.push(line));
      const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
      let ended = 0;
      for (let from = 0, nth = 0; from < bytes.byteLength; nth += 1) {
        const size = sizes[nth % sizes.length] ?? 1;
        ended += own.push(bytes.subarray(from, from + size)) ?? Number.NaN;
        from += size;
      }
      expect(heard).toEqual(lines.filter((line) => line.trim() !== ''));
      expect(ended).toBe(lines.length);
    });
    fc.assert(property, { numRuns: 200 });
  });

  it('that are too long are refused, in whatever pieces they come', () => {
    for (const size of [1, 7, 101]) {
      const own = new Lines(100, () => {});
      const said = Array.from({ length: Math.ceil(101 / size) }, () => own.push(Buffer.alloc(size, 'x')));
      expect(said.indexOf(undefined)).toBe(said.length - 1);
    }
  });

  it('that come in single bytes take little more memory than their bytes', () => {
    const heap = () => {
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      return heapUsed + arrayBuffers;
    };
    let length = 0;
    const own = new Lines(16_777_216, (line) => {
      length = line.length;
    });
    // Each has its own memory, as those that a pipe gives.
    const byte = (): Buffer => Buffer.from(new Uint8Array([0x78]));
    globalThis.gc?.();
    const before = heap();
    for (let count = 0; count < 1_000_000; count += 1) own.push(byte());
    globalThis.gc?.();
    expect(heap() - before).toBeLessThan(64_000_000);
    own.push(Buffer.from('\n'));
    expect(length).toBe(1_000_000);
  });
});
