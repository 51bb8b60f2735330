/** The inputs of a frame: its options, its turn, its starting point; and how a turn may end. */

import type { AwaitError, Clock, JsonObject } from '../../base/values.ts';
import type { AnswerCompletion, CallRecord, Checkpoint, OpenAsk, Response } from '../journal/entries.ts';

/**
 * Turns that may end without an outcome: clients of 2026-07-28 give up after ten requests. In the next one a call
 * continues as a task, if it may, and is not shed any more.
 */
export const CLIENT_ROUNDS = 9;

export interface FrameOptions {
  readonly drift: 'ask' | 'reuse' | 'fail';
  /** How long an ask waits for a running step before it goes out beside it, in milliseconds. */
  readonly askDelay: number;
  /**
   * How long a replayed tool may take, in milliseconds, to attempt the next recorded completion before that is skipped.
   * A branch may be waiting for something unrecorded.
   */
  readonly replayGrace: number;
  /** Asks a call may make in all. */
  readonly maxAsks: number;
  /** Notifications kept for a parked frame. */
  readonly maxHeldNotifications: number;
  /** Most bytes that `mcp-await/record` records of a call. Default 1 MiB. */
  readonly maxDrawnBytes?: number;
  readonly clock: Clock;
  readonly warn: (message: string, detail: JsonObject) => void;
  /** A step is done, and its turn was lost meanwhile: it runs elsewhere again. */
  readonly doneTwice: (path: string) => void;
  /** Whether this process has too much to do. */
  readonly overloaded?: () => boolean;
  /** Whether this process is about to end, and turns are to end at their next step. */
  readonly leaving?: () => boolean;
  /** Called with each ask of the tool's own code, before it has any effect. */
  readonly asked?: (frame: object, call: CallRecord) => void;
}

/** Why an ask cannot go out. */
export interface Lack {
  /** The client's, in the shape in which it declares it. */
  readonly required?: JsonObject;
  /** The tool's error, where the ask does not end its turn: what the client would answer. */
  readonly response: Response;
}

/** A turn as its frame sees it. */
export interface Turn {
  /** Live revisions send each ask at once and stay in the turn; the others end it with all that are open. */
  readonly live: boolean;
  /** Whether its client brings a call back that was given up without an ask. */
  readonly sheds?: boolean;
  /** Whether an ask that the client lacks the capability for ends the call: the revision has an error code for that. */
  readonly mustRefuse?: boolean;
  /** Present if this ask needs a client capability that the current request does not declare. */
  missing(method: string, params: JsonObject): Lack | undefined;
  /** The error of an ask whose answer could not be checked. */
  unfit(method: string, params: JsonObject, isRaw: boolean): Response | undefined;
  /** The answer a client sent along before it was asked, when it fits. */
  given(ask: OpenAsk): Response | undefined;
  /** Whether an ask of before goes out by another entry: its client reads the log, and was not asked from here. */
  asksAgain(key: string): boolean;
  ask(ask: OpenAsk): void;
  /** The tool gave up on an ask that is out. */
  withdraw(ask: OpenAsk): void;
  notify(notification: JsonObject): void;
  /** Whether the tool is run again after this response: no step of it may be running then. */
  isInterim(response: Response): boolean;
  /** How the call may continue without its request; absent if it may not, or does already. */
  readonly detach?: Detach | undefined;
  /** Whether it is being written that the call is a task: nothing new goes out until then. */
  readonly isDetaching?: boolean;
  end(ending: Ending): void;
}

export interface Detach {
  /** Whether it does so before its first step. */
  readonly atStep: boolean;
  /** The turn that must not end with asks any more, since its client would give up on it. */
  readonly lastTurn: number;
  /** Writes the entry and informs the client; the turn is live from then on. */
  run(): Promise<void>;
}

export type Ending =
  | { readonly kind: 'finished'; readonly response: Response }
  /** `isShed`: the call was given up, so it is not parked here. */
  | { readonly kind: 'suspended'; readonly checkpoint: Checkpoint; readonly isShed?: true }
  | { readonly kind: 'refused'; readonly required: JsonObject; readonly method: string }
  | { readonly kind: 'broken'; readonly error: AwaitError }
  /** The server that ran the tool has ended. `isMeant`: this process ended it, so the call continues in another. */
  | { readonly kind: 'lost'; readonly error: AwaitError; readonly isMeant: boolean };

/** How a tool follows the progress that its client reports on an ask. */
export interface AskProgress {
  /** @param params of the client's notification */
  readonly report: (params: JsonObject) => void;
  /** Whether each report begins the ask's `timeout` anew. */
  readonly resets: boolean;
  /** How long that may go on, in milliseconds. */
  readonly total?: number;
}

export interface AskOptions {
  /** Whether the ask was made in the call's own flow, not by a timer or a listener of the server. */
  readonly inContext: boolean;
  /** The `timeout` that the tool passed, in milliseconds. */
  readonly timeout?: number;
  readonly signal?: AbortSignal;
  readonly progress?: AskProgress;
  /** Whether the tool gets its answer unchecked, and checks it itself. */
  readonly raw?: true;
  /** Called once it was sent live. */
  readonly sent?: () => void;
  /** Called with its answer, as that was recorded. */
  readonly answered?: (answer: AnswerCompletion) => void;
}

/** A checkpoint with the completions since. */
export interface ReplayFrom extends Pick<Checkpoint, 'completions' | 'open' | 'asked' | 'turn' | 'drawn'> {
  /** How many of the last completions came with the turn that is entered now. */
  readonly fresh: number;
  /** Whether a replay skips it. */
  readonly isPast?: true;
}
