/** An answer to an ask that is out goes into the journal of its call, and then to its frame (invariant 11). */
import { answerTo, type Delivered } from '../journal/entries.ts';
import type { Run } from './run.ts';

/**
 * @param now milliseconds since the epoch
 * @returns false when none of this key waits
 * @throws AwaitError `store`, `fenced`
 */
export async function takeAnswer(run: Run, key: string, response: Delivered, now: number): Promise<boolean> {
  const ask = run.frame.openAsk(key);
  if (ask === undefined || run.answering?.has(key)) return false;
  if (response.isBad) return run.frame.reask(key);
  run.answering ??= new Set();
  run.answering.add(key);
  // One that the store said no to may be there all the same, for others to read.
  const entry = run.doubtful?.get(key) ?? {
    type: 'completed',
    completion: answerTo(ask, response),
    when: now,
  };
  try {
    await run.journal.append(entry, () => run.frame.answer(entry.completion));
    run.doubtful?.delete(key);
  } catch (error) {
    run.doubtful ??= new Map();
    run.doubtful.set(key, entry);
    throw error;
  } finally {
    run.answering.delete(key);
  }
  return true;
}
