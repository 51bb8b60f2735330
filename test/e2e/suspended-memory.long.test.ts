/** What 10,000 suspended calls leave on the heap once their frames are dropped (invariant 3). */
import { execFile } from 'node:child_process';
import process from 'node:process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { REDIS } from './services.ts';

const LIMIT = 2_048;
const SCRIPT = new URL('../fixtures/suspended-calls.ts', import.meta.url).pathname;

async function measure(...args: string[]): Promise<{ perCall: number; asked: number; parked: number }> {
  const command = ['--expose-gc', '--import', 'tsx', SCRIPT, ...args];
  const { stdout } = await promisify(execFile)(process.execPath, command);
  return JSON.parse(stdout) as { perCall: number; asked: number; parked: number };
}

describe('10,000 suspended calls leave under 2 KiB of heap each', { timeout: 300_000 }, () => {
  it.each([
    ['sealed, no store', ['sealed']],
    ['in the in-memory store', ['stored']],
  ])('%s', async (name, args) => {
    const { perCall, asked, parked } = await measure(...args);
    console.info(`${name}: ${perCall} bytes of heap for each suspended call`);
    expect({ asked, parked }).toEqual({ asked: 10_500, parked: 10 });
    expect(perCall).toBeLessThan(LIMIT);
  });

  it.skipIf(REDIS.down)(`in ${REDIS.name}`, async () => {
    const { perCall, asked, parked } = await measure('stored', REDIS.url());
    console.info(`Redis: ${perCall} bytes of heap for each suspended call`);
    expect({ asked, parked }).toEqual({ asked: 10_500, parked: 10 });
    expect(perCall).toBeLessThan(LIMIT);
  });
});
