/** A first request whose step is done while the store is silent, or as its process leaves, is not told to come again. */
import { expect, it } from 'vitest';
import { AwaitError } from '../../src/base/values.ts';
import type { CallRecord, Entry } from '../../src/call/journal/entries.ts';
import { JournalWriter } from '../../src/call/journal/writer.ts';
import type { OpenJournal } from '../../src/call/ports.ts';
import { Retry } from '../../src/log/retry.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';
import { complete, MemoryStore, resultOf, start, type Tool, workbench } from './bench.ts';

const LEASE = 40;

/** Tries again as the stores do, and counts its attempts. */
class SilentStore extends MemoryStore {
  isSilent = false;
  readonly attempts: string[] = [];
  readonly #retry = new Retry({ clock: steadyClock, lease: LEASE });

  override open(call: CallRecord, after: number): OpenJournal {
    const read = (position: number): Promise<Entry | undefined> =>
      this.#answered(() => this.read(call.id, position));
    return new JournalWriter(
      {
        insert: (position, entry, until) =>
          this.#retry.insert(
            () => {
              this.attempts.push(entry.type);
              return this.#answered(() => this.insertEntry(call, position, entry));
            },
            () => read(position),
            entry,
            until,
          ),
        read: (position, until) => this.#retry.read(() => read(position), until),
        readOn: (position) => this.#readOn(call.id, position),
        beat: async () => {},
      },
      call,
      after,
      steadyClock,
      LEASE,
    );
  }

  async *#readOn(callId: string, position: number): AsyncGenerator<Entry> {
    for (let at = position; ; at += 1) {
      const entry = await this.#retry.read(() => this.#answered(() => this.read(callId, at)));
      if (entry === undefined) return;
      yield entry;
    }
  }

  async #answered<T>(operation: () => Promise<T>): Promise<T> {
    if (this.isSilent) throw new AwaitError('store', 'it does not answer');
    return operation();
  }
}

it.each([
  ['is recorded first', false],
  ['runs beside an ask that is recorded first', true],
])(
  'a step that %s is tried to be recorded for longer than three leases, and not done again',
  async (_what, isBeside) => {
    const store = new SilentStore(LEASE);
    const done: string[] = [];
    let finish = (): void => {};
    const running = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const tool: Tool = async ({ step, elicit }) => {
      const charged = step('charge', async () => {
        store.isSilent = true;
        if (isBeside) await running;
        done.push('charge');
      });
      if (!isBeside) await charged;
      const [answer] = await Promise.all([elicit('sure?'), charged]);
      return answer.content;
    };
    const { engine } = workbench(tool, { store, frame: { askDelay: 1 } });
    const first = start(engine);
    // Five leases: pauses between attempts are a quarter of one at most.
    await expect.poll(() => store.attempts.length).toBeGreaterThan(25);
    store.isSilent = false;
    finish();
    expect(resultOf(await complete(await first, () => engine))).toEqual({ a: 're: sure?' });
    expect(done).toEqual(['charge']);
    await engine.close();
  },
);

it('a call that nobody can continue names the steps that its process began, as that leaves', async () => {
  const tool: Tool = async ({ step }) => {
    await step('charge', () => 1);
    await step('ship', () => new Promise(() => {}));
  };
  const store = new MemoryStore();
  const { engine } = workbench(tool, { store, limits: { drain: 20 } });
  const first = start(engine);
  await expect.poll(() => store.types()).toContain('completed');
  await engine.close();
  const outcome = await first;
  expect(outcome).toMatchObject({
    response: { error: { message: expect.stringContaining('Completed steps: charge, ship (begun)') } },
  });
  expect(JSON.stringify(outcome)).not.toContain('"retry":true');
});
