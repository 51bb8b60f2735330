/** What the engine is made of, and what it keeps of a call that is in this process. */

import type { Taker } from '../../base/allowance.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import type { JsonObject } from '../../base/json.ts';
import type { AnswerCheck, ErrorAnswers } from '../ask/answer.ts';
import type { Frame } from '../frame/frame.ts';
import type { FrameOptions } from '../frame/turn.ts';
import type {
  AnswerCompletion,
  CallRecord,
  Checkpoint,
  Completion,
  Entry,
  Response,
  TaskWish,
} from '../journal/entries.ts';
import type { TaskJournal } from '../journal/measured.ts';
import type { CallStore } from '../journal/store.ts';
import type { Limits } from '../limits.ts';
import type { Binding } from './binding.ts';
import type { HandoffParts } from './handoff.ts';
import type { Instance, Leg } from './leg.ts';
import type { Outcome } from './outcome.ts';
import type { State, StateTokens } from './state.ts';

export interface EngineParts {
  readonly store?: CallStore;
  readonly tokens: StateTokens;
  /** Whether tokens carry the checkpoint. */
  readonly carry: boolean;
  readonly check: AnswerCheck;
  readonly frame: FrameOptions;
  readonly limits: Limits;
  /** Lifetime of a call, in milliseconds. */
  readonly ttl: number;
  /** Whether a call may be run again from its start. @param done what its journal has of it */
  readonly replay: (call: CallRecord, done: readonly Completion[]) => 'allow' | 'never';
  readonly onDrop: 'forget' | 'unwind';
  readonly clock: Clock;
  /** Counts what happened, for the one who runs this. */
  readonly count: (what: Counted) => void;
  readonly log: (level: 'debug' | 'warn' | 'error', message: string, detail: JsonObject) => void;
  /** How processes reach one another, if they do. */
  readonly handoff?: HandoffParts;
  /** Told of a task before its client is. */
  readonly began?: (call: CallRecord) => Promise<void>;
  /** A request came that begins a call. */
  readonly called?: (call: CallRecord) => void;
  /** Told of the instance that a new call is about to run in. @returns the response where it must not */
  readonly admit?: (instance: Instance, call: CallRecord, leg: Leg) => Promise<Response | undefined>;
  /** A task that others run is to be looked after. */
  readonly watch?: (id: string) => void;
  /** A fresh instance of the user's server for one call. */
  readonly openInstance: (call: CallRecord, leg: Leg) => Promise<Instance>;
}

type Counted =
  | 'calls'
  | 'resumes'
  | 'live'
  | 'handedOff'
  | 'replayed'
  | 'takenOver'
  | 'stepsAtLeastOnce'
  | 'errors'
  | 'shed';

export interface Run {
  readonly call: CallRecord;
  readonly binding: Binding;
  /** Another one once the server that ran its tool was lost. */
  frame: Frame;
  readonly instance: Instance;
  readonly journal: TaskJournal;
  /** Whether it goes on without its request, so that others may take it up. */
  readonly isResumable?: boolean;
  /** Where it only asks for the URLs that its tool threw: what goes on with the call once they are answered. */
  readonly next?: () => Run | undefined;
  /** Set once it is a task. */
  detached?: true;
  /** Set from when that is being written. */
  detaching?: Promise<void>;
  /** The checkpoint it is parked at. */
  checkpoint?: Checkpoint;
  /** How large that is, as JSON. */
  bytes?: number;
  /** Digest of what the client sent whose turn ended without an outcome: only that may go on with it. */
  left?: string;
  /** Keys of asks whose answers are being written. */
  answering?: Set<string>;
  /** What was to be written of answers that the store may have or not, by key: it stays that. */
  doubtful?: Map<string, Extract<Entry, { type: 'completed' }> & { completion: AnswerCompletion }>;
  /** How often its server was lost, since something was recorded last. */
  lost?: { readonly times: number; readonly recorded: number };
  /** Keys of asks that this turn's client has. */
  asked?: Set<string>;
  /** Set while it is settled whether somebody took it up. */
  holding?: true;
  /** Set once the call is over for this process. */
  over?: true;
  /** Set while a turn is entered. */
  entered?: true;
  /** Ends its turn without an outcome. */
  gone?: () => void;
  /** Shows others that its turn is being run. */
  beating?: Timer;
}

/** A request that goes on with a call. */
export interface Resume {
  readonly state: State;
  readonly token: string;
  readonly binding: Binding;
  readonly responses: unknown;
  readonly errors?: ErrorAnswers;
  readonly sent: string;
  readonly leg: Leg;
  /** Tells how to end the turn early, once there is one. */
  readonly onRun: (leave: () => void) => void;
  /** Whether another process sent it here: it is not sent on. */
  readonly isOffered: boolean;
}

/** A turn that is shared by all who ask for it. */
export interface Active {
  readonly sent: string;
  readonly outcome: Promise<Outcome>;
  waiters: number;
  leave?: () => void;
}

/** How a call may become a task in this turn: where asks are live it does at once, or never. */
export function wishOf({ call }: Run, leg: Leg): TaskWish | undefined {
  return leg.takesTasks && !leg.live ? call.task : undefined;
}

/** Whose places a call takes: its caller's or, where that has no name, those of the address it comes from. */
export function takerOf({ call }: Pick<Run, 'call'>, { address }: Leg): Taker {
  return { principal: call.principal, address };
}

/** A turn, among those that are here. */
export function keyOf({ callId, at, mark = '' }: State): string {
  return `${callId}@${at}${mark}`;
}
