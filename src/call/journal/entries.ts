/**
 * The entries of a journal, and its folded form, a checkpoint.
 * A journal is append-only. While a call runs its entries are steps, asks and answers; at a suspension they are folded
 * into a checkpoint, which is an entry like the others, so that resuming reads one record. Completions (answers and
 * finished steps) are in the order in which they were released to the tool: replay releases them in the same order
 * (invariant 7).
 */
import { AwaitError, defined, isObject, type Json, type JsonObject } from '../../base/values.ts';
import type { DrawnValues } from './drawn.ts';

/** The format of everything this version writes. Another one is refused loudly, never guessed at. */
export const FORMAT = 1;

/** A JSON-RPC response without its envelope: the answer to an ask, or the outcome of a call. */
export type Response = { readonly result: JsonObject } | { readonly error: RpcError };

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

/** The outcome of a cancelled call. */
export const CANCELLED: Response = { error: { code: -32000, message: 'This request was cancelled' } };

/** When a call continues without its request. */
export interface TaskWish {
  /** At once; before its first step; or only when it takes long. */
  readonly when: 'now' | 'after-asks' | 'late';
  /** How long a turn may run without an ask before that, in milliseconds. */
  readonly after: number;
  /** Turns that may end with asks before it does. */
  readonly rounds: number;
  /** Whether its client is to get a task even when the call is over before. */
  readonly always: boolean;
  /** The owner of the list that it is in, if any. */
  readonly owner?: string;
  /** Whether its server runs its tool as a task of its own. */
  readonly isOwn?: true;
  /** Whether its revision has no -32042: the URLs that its tool throws are asked for. */
  readonly asksUrls?: true;
}

/** Why a call goes on without the request that began it. */
export interface Outlasted {
  /** Who answers what its client cannot be asked. */
  readonly person?: string;
  /** Its idempotency key. */
  readonly key?: string;
}

/** The facts that stay the same for the whole life of a call, taken from its first request. */
export interface CallRecord {
  readonly id: string;
  readonly method: string;
  /** The request's params as the first request sent them, without the members of one request (answers, tokens). */
  readonly params: JsonObject;
  /** The id of the client's first request: tools see it as `extra.requestId`. */
  readonly requestId: string | number;
  readonly revision: string;
  /** Capabilities, name and version of the asking client (invariant 4: a resumed call keeps its first request's). */
  readonly client: Client;
  /** The caller's stable subject; absent for an anonymous one. */
  readonly principal?: string;
  /** The name of its session: only there its reply can be resumed. */
  readonly session?: string;
  /** How it may become a task, where its client can take one. */
  readonly task?: TaskWish;
  /** That a call of its own outlasts its request; decided once, since later requests may have other headers. */
  readonly outlasted?: Outlasted;
  /** Milliseconds since the epoch. */
  readonly created: number;
  readonly expires: number;
}

/** What memory keeps of a call beside its records: not its arguments. */
export type Kept = Pick<CallRecord, 'id' | 'principal' | 'expires'>;

/** A call as those have it who do not run it: arguments may be long, and many may look at many calls at once. */
export function withoutArguments(call: CallRecord): CallRecord {
  const { arguments: _, ...params } = call.params;
  return { ...call, params };
}

/** The end of the id of a call that outlasts the request that began it. */
export const CONTINUED = '~';

/** Whether a call goes on without the request that began it, and is no client's to name. */
export function isContinued(callId: string): boolean {
  return callId.endsWith(CONTINUED);
}

export interface Client {
  readonly capabilities: JsonObject;
  readonly info: JsonObject;
  /** The session revision the server's instance is initialized with. */
  readonly protocolVersion: string;
}

/** An ask that went out, or is about to, and has no answer yet. */
export interface OpenAsk {
  /** Identity: its class and its ordinal in that class (invariant 5). */
  readonly place: string;
  /** The key on the wire, unique for the life of the call. */
  readonly key: string;
  /** Its key where asks go out together, if that is another: a tool that returns its asks names them itself. */
  readonly name?: string;
  readonly method: string;
  /** The ask's params as they go out, free of this package's `_meta` entry. */
  readonly params: JsonObject;
  /** Digest of the question. */
  readonly question: string;
  /** How many asks of this class in these very words the tool had made, with this one; absent where no tool asked. */
  readonly nth?: number;
  /** The tool's own `timeout`, and the time when it ends. */
  readonly deadline?: { readonly at: number; readonly timeout: number };
  /**
   * Present if the tool listens to its client's progress. `resets`: each report begins the `timeout` anew, but not after
   * `last`.
   */
  readonly progress?: {
    readonly resets?: boolean;
    readonly last?: { readonly at: number; readonly timeout: number };
  };
  /** How often the text at this place changed under replay. */
  readonly drift?: number;
  /** Whether the tool gave up on it; a replay of the call may not. */
  readonly withdrawn?: true;
  /** Whether its answer broke its schema, and it was not asked anew yet. */
  readonly refused?: true;
  /** Whether the tool gets its answer unchecked, and checks it itself. */
  readonly raw?: true;
}

export interface AnswerCompletion {
  readonly kind: 'answer';
  readonly place: string;
  readonly key: string;
  readonly method: string;
  /** Digest of the question that was answered. */
  readonly question: string;
  /** As in `OpenAsk`. */
  readonly nth?: number;
  readonly response: Response;
  readonly drift?: number;
  /**
   * Where a person may answer instead of the client: when the client got the question, if its token says so, and when it
   * answered, in milliseconds since the epoch by the clock that processes share.
   */
  readonly askedAt?: number;
  readonly answeredAt?: number;
}

export type StepOutcome =
  | { readonly value?: Json }
  | { readonly error: StepError }
  /** The step is done, but its result was no JSON. */
  | { readonly lost: true };

interface StepError {
  readonly name: string;
  readonly message: string;
  readonly code?: string | number;
  readonly data?: Json;
}

export interface StepCompletion {
  readonly kind: 'step';
  /** Names in sequence count (`charge`, `charge#2`), nested ones are paths (`order/charge`). */
  readonly path: string;
  readonly outcome: StepOutcome;
}

export type Completion = AnswerCompletion | StepCompletion;

/** A call as data, at a suspension. */
export interface Checkpoint {
  readonly format: number;
  readonly call: CallRecord;
  /** How many turns have ended. */
  readonly turn: number;
  readonly completions: readonly Completion[];
  readonly open: readonly OpenAsk[];
  /** How many asks were given a key so far. */
  readonly asked: number;
  /** Steps that were still running when the asks went out (invariant 6: after `askDelay`). */
  readonly running?: readonly string[];
  /** The tool's values from the clock and from chance, if `mcp-await/record` is imported. */
  readonly drawn?: DrawnValues;
}

export type Entry =
  /** `by`: the process that runs it, where others can reach it. */
  | {
      readonly type: 'called';
      readonly format: number;
      readonly call: CallRecord;
      readonly by?: string;
      /** Whether it is a task from the start. */
      readonly isTask?: true;
    }
  /** The call continues without its request: it is a task from here on. */
  | { readonly type: 'detached'; readonly when: number; readonly by?: string }
  /** `when`, here and below: milliseconds since the epoch, for the task's client. */
  | { readonly type: 'asked'; readonly ask: OpenAsk; readonly when?: number }
  /** `isReceived`: appended by the process that got it from the client, which need not be the call's owner. */
  | {
      readonly type: 'completed';
      readonly completion: Completion;
      readonly when?: number;
      readonly isReceived?: true;
      /** The ask was out longer than its author allows, and its client is told so. */
      readonly isLate?: true;
    }
  /** JSON-RPC messages for the call's client, where its reply is read from the log. */
  | { readonly type: 'notified'; readonly messages: readonly JsonObject[] }
  /**
   * A connection reads the call's reply from here on, in the process `by`, where others can reach it: an older one ends.
   */
  | { readonly type: 'reading'; readonly connection: string; readonly by?: string }
  /** The answer to an ask broke its schema: the owner asks anew. */
  | { readonly type: 'refused'; readonly key: string }
  /** A client's progress on an ask whose tool listens. */
  | { readonly type: 'reported'; readonly key: string; readonly params: JsonObject }
  /** The tool gave up on an ask that is out. */
  | { readonly type: 'withdrawn'; readonly key: string; readonly when: number }
  /** Values recorded since, written before a step runs: a replay must see the values that the step acted on. */
  | { readonly type: 'drawn'; readonly drawn: DrawnValues }
  /** `by`: the process that keeps the frame, where others can reach it. */
  | {
      readonly type: 'suspended';
      readonly checkpoint: Checkpoint;
      readonly by?: string;
      readonly when?: number;
    }
  /** A turn is claimed, with the digest of the client's answers and the process that got them. */
  | {
      readonly type: 'claimed';
      readonly answers: readonly AnswerCompletion[];
      readonly sent: string;
      readonly by: string;
      /** Its number among the claims of that process: two of its requests may claim the same turn. */
      readonly nth?: number;
    }
  /** The turn is still its owner's, who was silent for long. */
  | { readonly type: 'held' }
  /** The client of this turn went away; the turn may be claimed again with the same answers. */
  | { readonly type: 'left' }
  /** The client no longer wants the call; the process that runs it reads this with its next entry or heartbeat. */
  | {
      readonly type: 'cancelled';
      readonly when: number;
      /** Whether somebody else ended it, so that its client is told. */
      readonly isErased?: true;
    }
  | { readonly type: 'ended'; readonly response: Response; readonly when?: number };

/** Entries appended by a process that received something for a call. They do not fence the call's owner. */
export type Received =
  | (Extract<Entry, { type: 'completed' }> & { readonly completion: AnswerCompletion })
  | Extract<Entry, { type: 'refused' | 'reported' | 'reading' }>;

/** An entry that ends its call. */
type EndEntry = Extract<Entry, { type: 'ended' | 'cancelled' }>;

const RECEIVED: ReadonlySet<Entry['type']> = new Set(['refused', 'reported', 'reading']);

export function isReceived(entry: Entry): entry is Received {
  if (entry.type === 'completed') return entry.isReceived === true;
  return RECEIVED.has(entry.type);
}

export function isEnd(entry: Entry): entry is EndEntry {
  return entry.type === 'ended' || entry.type === 'cancelled';
}

/** In the place of an entry that was erased: its position stays taken, so that no process goes on with the call. */
export const DELETED = { type: 'cancelled', when: 0 } as const satisfies Entry;

/** Whether it ends its call, or its client has left: it matters only to processes that have found the call. */
export function isEndOrLeft(entry: Entry): boolean {
  return isEnd(entry) || entry.type === 'left';
}

/**
 * The log of one call, as a frame appends to it. `append` rejects with a `fenced` AwaitError when another process
 * claimed the call, or ended it.
 */
export interface Journal {
  /**
   * @param onWritten called once the entry has its position, and before a later entry has one, so that calls come in
   * journal order
   */
  append(entry: Entry, onWritten?: () => void): Promise<void>;
  /**
   * Appends what `make` returns, which is asked again after each entry that came in between.
   * @returns false if it returns nothing: what came in between settled it
   * @throws AwaitError as `append`
   */
  decide(make: () => Entry | undefined, onWritten?: () => void): Promise<boolean>;
  /**
   * Before the call acts: resolves once others can find it and its client has a way back to it; undefined where that
   * is so.
   */
  begin?(): Promise<void> | undefined;
  /** Before a step: as `begin`, or, where its client has no way back, resolves once the call is stored. */
  store?(): Promise<void> | undefined;
  /** Whether others may have taken the turn up meanwhile: an entry appended settles it. */
  readonly lapsed: boolean;
}

/** Reads a checkpoint that came from outside of this process. */
export function readCheckpoint(value: unknown): Checkpoint {
  if (!isObject(value) || value.format !== FORMAT) {
    throw new AwaitError(
      'format',
      `This checkpoint has format ${isObject(value) ? String(value.format) : typeof value}, and ${FORMAT} is read here. Finish suspended calls with the version that wrote them.`,
    );
  }
  return value as unknown as Checkpoint;
}

/** The completion of an ask whose answer came after the `timeout` its author set: the SDK's own time-out error. */
export function timedOut(ask: OpenAsk, timeout: number): AnswerCompletion {
  return answerTo(ask, { error: { code: -32001, message: 'Request timed out', data: { timeout } } });
}

export function answerTo(ask: OpenAsk, response: Response): AnswerCompletion {
  return {
    kind: 'answer',
    place: ask.place,
    key: ask.key,
    method: ask.method,
    question: ask.question,
    ...defined({ nth: ask.nth }),
    response,
    ...defined({ drift: ask.drift }),
  };
}
