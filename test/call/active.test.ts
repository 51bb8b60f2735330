/** A resumed turn that several requests share: which of them may still join it. */
import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/call/ports.ts';
import { Active } from '../../src/call/run/active.ts';

const DONE: Outcome = { kind: 'responded', response: { result: {} } };

describe('a shared turn', () => {
  it('ends once all its clients disconnected, and then nobody may join it', async () => {
    const [first, second] = [new AbortController(), new AbortController()];
    let ended = 0;
    const turn = new Active('sent', () => new Promise(() => {}));
    const waits = [turn.wait(first.signal), turn.wait(second.signal)];
    turn.begun(() => {
      ended += 1;
    });
    first.abort();
    expect((await waits[0])?.kind).toBe('gone');
    expect([turn.isAbandoned, ended]).toEqual([false, 0]);
    second.abort();
    expect((await waits[1])?.kind).toBe('gone');
    expect([turn.isAbandoned, ended]).toEqual([true, 1]);
  });

  it('may be joined while it is prepared, also after its first client disconnected', async () => {
    const gone = new AbortController();
    let finish: (outcome: Outcome) => void = () => {};
    const turn = new Active('sent', () => new Promise((resolve) => (finish = resolve)));
    const first = turn.wait(gone.signal);
    gone.abort();
    expect((await first).kind).toBe('gone');
    expect(turn.isAbandoned).toBe(false);
    const again = turn.wait(undefined);
    turn.begun(() => expect.unreachable());
    await Promise.resolve();
    finish(DONE);
    expect(await again).toBe(DONE);
  });
});
