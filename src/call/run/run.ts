/** The parts of the engine, and its state of a call in this process. */

import type { QuotaKey } from '../../base/quota.ts';
import { type Clock, type JsonObject, memoryOf, type Repeating } from '../../base/values.ts';
import type { AnswerCheck, ErrorAnswers } from '../ask/answer.ts';
import { Frame } from '../frame/frame.ts';
import type { FrameOptions, ReplayFrom } from '../frame/turn.ts';
import type {
  CallRecord,
  Checkpoint,
  Completion,
  Entry,
  Outlasted,
  Response,
  TaskWish,
} from '../journal/entries.ts';
import type { RunJournal } from '../journal/run-journal.ts';
import type { CallStore } from '../journal/store.ts';
import type { Limits } from '../limits.ts';
import type { Active } from './active.ts';
import type { Binding } from './binding.ts';
import type { HandoffParts } from './handoff.ts';
import type { Outcome } from './outcome.ts';
import type { Instance, RequestContext } from './request-context.ts';
import type { StateTokens, TokenState } from './state.ts';

export interface EngineParts {
  readonly store?: CallStore;
  readonly tokens: StateTokens;
  /** Whether tokens carry the checkpoint. */
  readonly carry: boolean;
  readonly check: AnswerCheck;
  /** Whether a response is that of a server which has not what was called, or refuses its arguments. */
  readonly isRefusal: (response: Response) => boolean;
  readonly frame: FrameOptions;
  readonly limits: Limits;
  /** Lifetime of a call, in milliseconds. */
  readonly ttl: number;
  /** Whether a call may be run again from its start. @param done the completions in its journal */
  readonly replay: (call: CallRecord, done: readonly Completion[]) => 'allow' | 'never';
  readonly onDrop: 'forget' | 'unwind';
  /** Whether a suspended call keeps its server from other calls: a server behind a link runs one that may ask. */
  readonly holdsServers?: boolean;
  readonly clock: Clock;
  /** The clock that processes share, where it matters when a client answers. */
  readonly time?: (() => number) | undefined;
  /** Counts an event, for the operator. */
  readonly count: (what: Counted) => void;
  readonly log: (level: 'debug' | 'info' | 'warn' | 'error', message: string, detail: JsonObject) => void;
  /** How processes reach one another, if they do. */
  readonly handoff?: HandoffParts;
  /** Where the logs of live calls are, if there is no store: this process's memory. */
  readonly local?: CallStore;
  /** Another process wrote an entry of a call that runs here, or whose turn a client here waits for. */
  readonly received?: (callId: string, position: number, entry: Entry) => void;
  /** Called with a task before its client gets it. */
  readonly began?: (call: CallRecord) => Promise<void>;
  /** A request came that begins a call. */
  readonly called?: (call: CallRecord) => void;
  /** A call ended of which nothing was written. */
  readonly ended?: (call: CallRecord, outcome: Outcome) => void;
  /** Called with the instance of a new call before it runs. @returns the response if it must not run */
  readonly admit?: (
    instance: Instance,
    call: CallRecord,
    context: RequestContext,
  ) => Promise<Response | undefined> | undefined;
  /** Whether a new call is to outlast its request: its record says so from then on. */
  readonly outlasts?: (call: CallRecord, context: RequestContext) => Outlasted | undefined;
  /**
   * The instance that a call which outlasts its request runs in instead.
   * @param how `isKept`: other calls use it too; `isAgain`: the call began before
   */
  readonly route?: (
    home: Instance,
    call: CallRecord,
    context: RequestContext,
    how: { readonly isKept: boolean; readonly isAgain: boolean },
  ) => Instance | undefined;
  /** An answer came to an ask of a call that is over. @returns whether it counts for a call that outlasts it */
  readonly late?: (
    callId: string,
    principal: string | undefined,
    key: string,
    response: Response,
  ) => Promise<boolean>;
  /** Registers a task that another process runs, to take it over if its owner dies. */
  readonly watch?: (id: string) => void;
  /** A fresh instance of the user's server for one call. */
  readonly openInstance: (call: CallRecord, context: RequestContext) => Promise<Instance>;
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

/** The state of a run. A field that is valid in one state only belongs to that state. */
export type RunState =
  /** Its first turn is still to come. */
  | { readonly at: 'new' }
  | InTurn
  /** Its turn has ended; its outcome is being written. */
  | (Pick<InTurn, 'resolveGone'> & { readonly at: 'ending' })
  /** It waits for its client's answers. */
  | AtCheckpoint
  /** Its turn ended without an outcome. */
  | Interrupted
  /** This process has no part in the call any more. */
  | { readonly at: 'over' };

/** A turn is entered: the tool may act. */
export interface InTurn {
  readonly at: 'turn';
  /** Whether its asks go out while it runs: then it cannot end at a step. */
  readonly live: boolean;
  /** Resolves the turn's outcome with `gone`: its client gets no response. */
  readonly resolveGone: (isErased: boolean) => void;
  /** Ends the turn without an outcome, because this process leaves. Resolves once another may continue the call. */
  readonly stop: () => Promise<void>;
  /** Ends it while its stream can still have the response. */
  readonly expiry?: Repeating | undefined;
}

export interface AtCheckpoint {
  readonly at: 'checkpoint';
  readonly checkpoint: Checkpoint;
  /** How large that is, as JSON. */
  readonly bytes: number;
}

export interface Interrupted {
  readonly at: 'interrupted';
  /** Digest of the client's answers in that turn: only the same request continues it. */
  readonly sent: string;
  /** How large its journal is, as JSON. */
  readonly bytes: number;
}

/**
 * What a call's continuation depends on. `request`: without its request it is suspended or ended; `journal`: it
 * continues without it, and other processes may take it over; `task`: as `journal`, and its client polls it by its id.
 */
type HeldBy =
  | { readonly by: 'request' | 'journal' | 'task' }
  /** Until it is written that it is a task. */
  | { readonly by: 'request' | 'journal'; readonly becomesTask: Promise<void> };

export interface Run {
  readonly call: CallRecord;
  /** The memory that its arguments take, and what else its request brought, in bytes. */
  readonly bytes: number;
  readonly binding: Binding;
  /** Another one once the server that ran its tool was lost. */
  frame: Frame;
  readonly instance: Instance;
  readonly journal: RunJournal;
  state: RunState;
  held: HeldBy;
  /** For a run that only asks for URLs that the tool threw: the run that continues once they are answered. */
  readonly next?: (() => Run | undefined) | undefined;
  /** Whether its client reads its log: what happens to it is written, even where no other process can continue it. */
  readonly isLogged?: boolean;
  /** Keys of asks that went out live. */
  readonly asked: string[];
  /** How often its server was lost, since something was recorded last. */
  lost?: { readonly times: number; readonly recorded: number };
  /** Set until the tool of its turn is started. */
  starts?: Repeating;
  /** Shows others that its turn is being run. */
  heartbeat?: Repeating;
  /** Set while an entry decides whether another process took it over. */
  isReclaiming?: true;
}

/** A request that continues a call. */
export interface Resume {
  readonly state: TokenState;
  readonly token: string;
  readonly binding: Binding;
  readonly responses: unknown;
  readonly errors?: ErrorAnswers;
  readonly sent: string;
  readonly context: RequestContext;
  /** The turn that it asks for, shared with identical requests. */
  readonly active: Active;
  /**
   * Called when the turn runs here, for another process that passed the request on; such a request is not passed on
   * again.
   */
  readonly accepted?: () => void;
}

/** A run whose first turn has not begun. @param bytes the memory that its request takes */
export function newRun(
  made: Pick<Run, 'call' | 'binding' | 'frame' | 'instance' | 'journal' | 'held' | 'next' | 'isLogged'>,
  bytes: number = memoryOf(made.call.params),
): Run {
  return { ...made, bytes, state: { at: 'new' }, asked: [] };
}

/**
 * A run in `home`, or in what outlasts its request.
 * @param isKept whether other calls use `home` too
 * @param from where a replay begins
 */
export function runIn(
  { frame: options, route }: EngineParts,
  made: Pick<Run, 'call' | 'binding' | 'journal' | 'held'>,
  context: RequestContext,
  { home, isKept }: { readonly home: Instance; readonly isKept: boolean },
  from?: ReplayFrom,
  bytes?: number,
): Run {
  const { call, journal } = made;
  const instance = route?.(home, call, context, { isKept, isAgain: from !== undefined }) ?? home;
  // What outlasts a request reads its record as a whole: how far the call is is in another log.
  const past = call.outlasted && ({ isPast: true } as const);
  const frame = new Frame(call, journal, options, from && { ...from, ...past });
  return newRun({ ...made, frame, instance, isLogged: context.isLogged === true }, bytes);
}

/** Its owner left it, or was silent for a lease. */
export function tookOver({ count, log }: EngineParts, { id: call }: CallRecord): void {
  count('takenOver');
  log('info', 'took over a call whose process left it, or was silent', { call });
}

export function stopHeartbeat(run: Run): void {
  run.heartbeat?.cancel();
  delete run.heartbeat;
}

/** Whether a call continues without its request. */
export function isUnattached({ held }: Run): boolean {
  return held.by !== 'request';
}

export function isTask({ held }: Run): boolean {
  return held.by === 'task';
}

/** Resolves once the journal says that a call is a task; undefined if it does not become one, or is one already. */
export function becomingTask({ held }: Run): Promise<void> | undefined {
  return 'becomesTask' in held ? held.becomesTask : undefined;
}

/** How a call may become a task in this turn: where asks are live it does at once, or never. */
export function wishOf({ call }: Run, context: RequestContext): TaskWish | undefined {
  return context.takesTasks && !context.live ? call.task : undefined;
}

/** Whose share of the limits a call uses: its caller's, or an anonymous caller's address. */
export function quotaKeyOf(
  { principal }: Pick<CallRecord, 'principal'>,
  { address }: RequestContext,
): QuotaKey {
  return { principal, address };
}

/** A turn, among those that are here. */
export function keyOf({ callId, at, mark = '' }: TokenState): string {
  return `${callId}@${at}${mark}`;
}
