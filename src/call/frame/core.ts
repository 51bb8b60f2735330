/** The state that the parts of one frame share. */
import type { CallRecord, Journal } from '../journal/entries.ts';
import type { Gate } from './gate.ts';
import type { Attempt, Recording } from './recording.ts';
import type { Ending, FrameOptions } from './turn.ts';

export interface FrameCore {
  readonly call: CallRecord;
  readonly journal: Journal;
  readonly options: FrameOptions;
  readonly recording: Recording;
  readonly gate: Gate;
  /** Attempts that are matched with nothing yet. */
  readonly fresh: Set<Attempt>;
  /** Turns that ended with a checkpoint. */
  turns: number;
  /** The tool attempts something. */
  attempt(attempt: Attempt): void;
  /** Ends the turn that is entered. */
  end(ending: Ending): void;
  /** Something changed: the frame decides its next act. */
  stir(): void;
}
