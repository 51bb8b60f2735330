/** A call as it is started, and as its starter follows it. */
import type { JsonObject } from '../base/values.ts';
import type { Client, Response, TaskWish } from './journal/entries.ts';
import type { Binding } from './run/binding.ts';
import type { Outcome } from './run/outcome.ts';
import type { Instance } from './run/request-context.ts';

export interface NewCall {
  readonly method: string;
  readonly params: JsonObject;
  readonly requestId: string | number;
  readonly client: Client;
  readonly binding: Binding;
  /** `inputResponses` of a request without `requestState`: used where an ask's explicit key matches. */
  readonly responses?: unknown;
  /**
   * Decides how it may become a task, where that depends on the server's own declarations; called once, before the tool
   * runs. If it returns a response, that is the outcome.
   */
  readonly choose?: (instance: Instance) => Promise<TaskWish | Response | undefined>;
  /** The same, where it is known. */
  readonly task?: TaskWish;
  /** An unused id; default: a new one. */
  readonly callId?: string;
  /** The name of its session, if its reply can be resumed there. */
  readonly session?: string;
  /** How long it lives, in milliseconds, where that is less than calls may. */
  readonly ttl?: number;
  /** Whether it continues without its request: others may follow it, and take it over (`takeUp`). */
  readonly resumable?: boolean;
  /**
   * Where given, nothing of it is written before its first ask or step, or before `keep` is called. Then this is called,
   * once or, where it fails, again: it gives the client its way back, and no step runs before it resolves.
   */
  readonly onDurable?: () => Promise<void>;
}

/** A call that is being run for a client that may still talk to it. */
export interface Started {
  /** The call's id, under which other processes find it where it is resumable. */
  readonly callId: string;
  readonly outcome: Promise<Outcome>;
  /** Live revisions: the client's response to an ask; false when no ask of this key is open. */
  answer(key: string, response: Response): Promise<boolean>;
  /** Live revisions: the client's progress on an ask; false when no ask of this key is open, or listens. */
  report(key: string, params: JsonObject): boolean;
  /** Ends the call, also while it is suspended. */
  cancel(reason?: string): void;
}

export interface Says extends Started {
  /** Where its reply is read from its log: a message for its client. */
  say(message: JsonObject): void;
}

/** A call that begins. */
export interface Begun extends Says {
  /** Resolves once others can find it, where it is resumable, or when it is over. */
  readonly kept: Promise<void>;
  /**
   * Writes down now that it begins, where that waits; resolves as `kept` does.
   * @throws AwaitError `store`: it is not written, and runs on
   */
  keep(): Promise<boolean>;
}

/** A call that is taken over, or followed until then. */
export interface TakingUp extends Says {
  /** Stops following; a call that is already taken over, or is being claimed, continues. */
  stop(): void;
}
