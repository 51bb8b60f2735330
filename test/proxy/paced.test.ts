/** A pipe that brings more than its rate is paused, and goes on later; one that is held goes on when it is let go. */
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { Paced } from '../../src/proxy/paced.ts';

function paced(isHeld = () => false) {
  const pipe = new PassThrough();
  pipe.resume();
  return { pipe, own: new Paced(pipe, isHeld) };
}

describe('a pipe', () => {
  it.each([
    ['lines', 5_000, 5_000],
    ['bytes', 0, 8_000_000],
  ])('that brings too many %s at once waits, and goes on', async (_what, lines, bytes) => {
    const { pipe, own } = paced();
    own.took(lines, bytes);
    expect(pipe.isPaused()).toBe(true);
    await expect.poll(() => pipe.isPaused()).toBe(false);
  });

  it('that brings less does not wait', () => {
    const { pipe, own } = paced();
    for (let count = 0; count < 10; count += 1) own.took(10, 10_000);
    expect(pipe.isPaused()).toBe(false);
  });

  it('that is held goes on once it is let go, and not before its time', async () => {
    let isHeld = true;
    const { pipe, own } = paced(() => isHeld);
    own.took(1, 1);
    expect(pipe.isPaused()).toBe(true);
    own.took(5_000, 1);
    isHeld = false;
    own.resume();
    expect(pipe.isPaused()).toBe(true);
    await expect.poll(() => pipe.isPaused()).toBe(false);
  });
});
