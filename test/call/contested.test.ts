/** A process that waits for a turn and is stopped itself: the time that it was stopped is not the owner's silence. */
import { describe, expect, it } from 'vitest';
import { sleep } from '../../src/base/values.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
import { readOn } from '../../src/call/journal/follow.ts';
import type { CallStore } from '../../src/call/ports.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';

const LEASE = 200;
const claim: Entry = { type: 'claimed', answers: [], sent: 'same', by: 'the owner' };

/** A call whose owner beats; the observer reads the sign of life it asked for, but only after `slept(nth look)`. */
function watching(
  slept: (look: number) => number,
  beats = true,
  failures: (look: number) => number = () => 0,
): Promise<unknown> {
  const started = steadyClock.elapsed();
  let look = 0;
  const store: CallStore = {
    open: () => {
      throw new Error('nobody writes here');
    },
    read: async () => undefined,
    readOn: async function* (_callId, position) {
      if (position === 1) yield claim;
    },
    isShared: true,
    get failures() {
      return failures(look);
    },
    insertEntry: async () => false,
    heard: async () => {
      look += 1;
      const said = beats ? Math.floor((steadyClock.elapsed() - started) / (LEASE / 3)) : 0;
      await sleep(steadyClock, slept(look));
      return said;
    },
  };
  return readOn({
    store,
    callId: 'call',
    principal: undefined,
    at: 0,
    sent: 'same',
    owns: () => undefined,
    clock: steadyClock,
    stopped: () => false,
    running: [],
    lease: LEASE,
    wait: LEASE * 6,
  });
}

describe('an observer that was stopped', () => {
  it.each([1, 2])('at its look number %i leaves the turn to an owner that beats', async (stopped) => {
    const found = watching((look) => (look === stopped ? LEASE * 1.5 : 0));
    await expect(found).rejects.toMatchObject({ code: 'busy' });
  });

  it('still takes over from an owner that is silent', async () => {
    await expect(watching((look) => (look === 1 ? LEASE * 1.5 : 0), false)).resolves.toMatchObject({
      kind: 'free',
    });
  });
});

describe('an observer whose reads fail', () => {
  it('counts no silence while they do, since the owner cannot write either', async () => {
    await expect(
      watching(
        () => 0,
        false,
        (look) => look,
      ),
    ).rejects.toMatchObject({ code: 'busy' });
  });

  it('takes over from an owner that stays silent for a lease after that', async () => {
    await expect(
      watching(
        () => 0,
        false,
        (look) => Math.min(look, 3),
      ),
    ).resolves.toMatchObject({ kind: 'free' });
  });
});
