/**
 * An ask of a server outside of any call: a call of its own with one ask, so that its answer is received like any
 * other, at any process. It ends with its server, so nobody takes it over.
 */
import { AwaitError, defined, type JsonObject } from '../../base/values.ts';
import { type CallRecord, FORMAT, type OpenAsk, type Response } from '../journal/entries.ts';
import type { CallStore, OpenJournal } from '../journal/store.ts';
import type { Lookout } from './lookout.ts';

/** The method of a call that is one ask: no request has it. */
export const OUTSIDE = '';

export interface OutsideAsk {
  /** Whose `method` is `OUTSIDE`. */
  readonly call: CallRecord;
  readonly ask: OpenAsk;
  /** The process that asks, where others can reach it. */
  readonly by: string | undefined;
  readonly answered: (response: Response) => void;
  readonly reported: (params: JsonObject) => void;
  readonly failed: (error: AwaitError) => void;
}

/**
 * Resolves once other processes can receive its answer.
 * @returns ends it
 * @throws AwaitError `store`, `limit`
 */
export async function askOutside(
  store: CallStore,
  lookout: Lookout,
  { call, ask, by, answered, reported, failed }: OutsideAsk,
): Promise<() => void> {
  const journal: OpenJournal = store.open(call, -1);
  let isOver = false;
  const end = (): void => {
    if (isOver) return;
    isOver = true;
    journal.append({ type: 'ended', response: { result: {} } }).catch(() => {});
  };
  journal.onReceived = (entry) => {
    if (entry.type === 'reported') reported(entry.params);
    else if (entry.type === 'completed' && !isOver) {
      end();
      answered(entry.completion.response);
    }
  };
  await journal.append({ type: 'called', format: FORMAT, call, ...defined({ by }) });
  await journal.append({ type: 'asked', ask });
  const look = async (): Promise<void> => {
    try {
      await journal.readOn();
    } catch (error) {
      failed(AwaitError.from(error));
    }
  };
  lookout.expect({ callId: call.id, waits: () => !isOver, look });
  return end;
}
