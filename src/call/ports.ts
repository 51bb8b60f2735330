/**
 * The narrow interfaces that the engine is handed (so that it needs neither HTTP, nor Keyv, nor an SDK):
 * where journals are kept, what tokens carry, and the user's server behind it all.
 */
import type { Frame } from './frame.ts';
import type { CallRecord, Checkpoint, Delivered, Entry, Journal, OpenAsk, Response } from './journal.ts';
import type { JsonObject } from './json.ts';

/** A journal that knows how far it is. */
export interface OpenJournal extends Journal {
  /** The position of the last entry appended; -1 before the first. */
  readonly position: number;
  /** Tells others that the owner of this call's turn is alive: overwrites what was told before. */
  beat(sign: string): Promise<void>;
}

export interface CallStore {
  /** A journal whose next entry goes to the position after `after`. */
  open(call: CallRecord, after: number): OpenJournal;
  /** @throws AwaitError `store` when it cannot be read; `undefined` is a sure miss. */
  read(callId: string, position: number): Promise<Entry | undefined>;
  /** Stores that are this process's memory: drops a call's entries up to a position. */
  forget?(call: CallRecord, upTo: number): void;
  /** What the owner told last. */
  heard(callId: string): Promise<unknown>;
  /**
   * Takes in the answer to an ask; false when there was one.
   * @param expires of the call, in milliseconds since the epoch
   */
  deliver(callId: string, key: string, response: Delivered, expires: number): Promise<boolean>;
  delivered(callId: string, key: string): Promise<Delivered | undefined>;
  /** Whether other processes may see it. */
  readonly isShared: boolean;
}

/** How processes reach one another: messages by name, to at most one process each. */
export interface Relay {
  /**
   * Hears what is sent to `name` from the moment this resolves.
   * @returns how to stop
   */
  listen(name: string, hear: (message: string) => void): Promise<() => Promise<void>>;
  /**
   * May lose, delay, reorder or repeat.
   * @returns false only when it is sure that nobody listens
   */
  send(name: string, message: string): Promise<boolean>;
  close(): Promise<void>;
}

/** What a state token carries, apart from its checks. */
export interface State {
  readonly callId: string;
  /** The position of the checkpoint in the call's journal. */
  readonly at: number;
  /** The checkpoint itself, where tokens carry it. */
  readonly checkpoint?: Checkpoint;
  /** Tells checkpoints apart that stand at one position: two processes may run one sealed token. */
  readonly mark?: string;
  /** The process that parked the call's frame, where processes reach one another. */
  readonly owner?: string;
}

/** What a token is bound to; all of it is checked before the store is looked at. */
export interface Binding {
  readonly revision: string;
  readonly method: string;
  /** The tool, the prompt, or the resource's URI. */
  readonly target: string;
  /** Digest of the arguments. */
  readonly args: string;
  readonly principal?: string;
}

export interface StateTokens {
  seal(state: State, binding: Binding, expires: number): Promise<string>;
  /** @throws AwaitError `bad-token`, whose message is for the logger alone */
  open(token: string, binding: Binding): Promise<State>;
}

/** One instance of the user's server, initialized with a client's capabilities and identity. */
export interface Instance {
  /**
   * Sends a request into the server; its asks and notifications reach `frame`, and so does its response.
   * @param leg what the request carries besides its params
   */
  call(
    frame: Frame,
    request: { method: string; params: JsonObject; id: string | number },
    leg: InstanceLeg,
  ): void;
  /** A new turn of a call that is already in: its credentials and progress token are this leg's from now on. */
  refresh(frame: Frame, leg: InstanceLeg): void;
  /** Aborts the request's signal in the server; nothing of it is heard any more. */
  cancel(frame: Frame, reason?: string): void;
  /** Ends it: cleanup runs, and the server is closed unless a frame of it is unfinished (invariant 1). */
  release(unfinished: boolean): void;
}

export interface InstanceLeg {
  readonly authInfo?: JsonObject;
  readonly request?: Request;
  /** What the client asked for beside the message, where the wire has workspaces. */
  readonly workspace?: string;
  readonly progressToken?: string | number;
  /** Ends the SSE stream of the request, so that the client comes back for the rest (polling, 2025-11-25). */
  readonly closeStream?: () => void;
}

/** Tells that a client went away: an AbortSignal, or as much of one. */
export interface Gone {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** What one request of a client brings, and where what comes of it goes. */
export interface Leg extends InstanceLeg {
  readonly live: boolean;
  /** The capabilities that this request's client declares now. */
  readonly capabilities: JsonObject;
  /** Fires when the client goes away. */
  readonly signal?: Gone;
  /** Whether its client brings a call back that was given up without an ask. */
  readonly sheds?: boolean;
  /** Whether the turn goes on without its request: others may follow it, and take it up (`takeUp`). */
  readonly goesOn?: boolean;
  /** Whether its client can take a task in reply. */
  readonly takesTasks?: boolean;
  /** What its client gets where the call can go on as a task alone, and it can take none. */
  readonly taskRefusal?: Response;
  /** The instance that a replay runs in, where it is not to be one of its own. */
  readonly home?: () => Promise<Instance>;
  notify(notification: JsonObject): void;
  /** A resumed turn begins here: how to end its call, as its client wishes, is told. */
  begun?(cancel: (reason?: string) => void): void;
  /** Live revisions: an ask goes out. */
  ask?(ask: OpenAsk): void;
  withdraw?(ask: OpenAsk): void;
}

/** A turn that ended with asks. */
export interface OpenAskOutcome {
  readonly kind: 'suspended';
  readonly asks: readonly OpenAsk[];
  readonly token: string;
  readonly elsewhere?: true;
}

/** `elsewhere`: another process ran the turn, and tells its own client. */
export type Outcome =
  /** The call goes on as a task. */
  | { readonly kind: 'task'; readonly taskId: string }
  | { readonly kind: 'responded'; readonly response: Response; readonly elsewhere?: true }
  | OpenAskOutcome
  /** The client went away or cancelled; there is nobody to tell. `elsewhere`: while another process ran the call. */
  | { readonly kind: 'gone'; readonly elsewhere?: true };
