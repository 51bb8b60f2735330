/**
 * Tells the ledger what became of each entry that this process appends to a journal, and when its event loop
 * stood still. So a step that ran twice is not excused by any fault nearby, but by what happened to it.
 */
import process from 'node:process';
import { AwaitError, isObject } from '../../src/base/values.ts';
import type { OpenJournal } from '../../src/call/ports.ts';
import { KeyvCallStore } from '../../src/checkpoint/call-store.ts';
import { type Append, clock, type Event } from './events.ts';

const LOOK_EVERY = 50;
/** A timer that is this late counts as a stall, in milliseconds. */
const LATE = 50;

export function witness(tell: (event: Event) => void): void {
  const { open } = KeyvCallStore.prototype;
  KeyvCallStore.prototype.open = function (this: KeyvCallStore, call, after) {
    const journal = open.call(this, call, after);
    const { decide } = journal;
    return Object.assign(journal, {
      async decide(make, onWritten) {
        const entry = make();
        if (entry === undefined) return false;
        const since = clock();
        const run = entry.type === 'completed' ? runOf(entry.completion) : undefined;
        if (run !== undefined) tell({ type: 'appending', run, at: since });
        const told = (outcome: Append['outcome'], cause?: string): void => {
          tell({
            type: 'append',
            call: call.id,
            entry: entry.type,
            outcome,
            pid: process.pid,
            since,
            at: clock(),
            ...(run !== undefined && { run }),
            ...(cause !== undefined && { cause }),
          });
        };
        let isWritten = false;
        try {
          isWritten = await decide.call(journal, make, onWritten);
        } catch (error) {
          const { code, cause } = AwaitError.from(error);
          told(code === 'fenced' ? 'fenced' : 'store', String(cause));
          throw error;
        }
        if (isWritten) told('written');
        return isWritten;
      },
    } satisfies Pick<OpenJournal, 'decide'>);
  };
  let last = clock();
  setInterval(() => {
    const now = clock();
    if (now - last > LOOK_EVERY + LATE)
      tell({ type: 'stall', pid: process.pid, since: last + LOOK_EVERY, at: now });
    last = now;
  }, LOOK_EVERY).unref();
}

/** Steps of the chaos tool return which execution of theirs it was. */
function runOf(completion: object): string | undefined {
  if (!('outcome' in completion) || !isObject(completion.outcome)) return undefined;
  const { value } = completion.outcome;
  return isObject(value) && typeof value.run === 'string' ? value.run : undefined;
}
