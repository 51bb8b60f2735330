/** The facts that a client's request brings to a turn, and the server instance that the turn runs in. */
import type { JsonObject } from '../../base/values.ts';
import type { Frame } from '../frame/frame.ts';
import type { OpenAsk, Response } from '../journal/entries.ts';

/** Reports that a client disconnected: an AbortSignal, or the part of one that is used. */
export interface AbortSignalLike {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

export interface InstanceContext {
  /** Whether its call has ended and is only replayed in this instance: the server's asks then go nowhere. */
  readonly isRehearsal?: true;
  readonly authInfo?: JsonObject;
  /** The HTTP request that it came with, made when a tool looks at it. */
  readonly request?: () => Request;
  /** The least severe log messages it wants, if each request declares that. */
  readonly logLevel?: string;
  /** The workspace of the request, on a wire that has them. */
  readonly workspace?: string;
  readonly progressToken?: string | number;
  /** Whether the request came from this machine directly, without a proxy. */
  readonly isLocal?: boolean;
  /** Ends the SSE stream of the request, so that the client comes back for the rest (polling, 2025-11-25). */
  readonly closeStream?: () => void;
  /** Ends the connection of its session's standing stream, in the same way. */
  readonly closeStanding?: () => void;
}

/** The facts of one client request, and the functions that send its messages. */
export interface RequestContext extends InstanceContext {
  readonly live: boolean;
  /** Whether its client knows -32042. Default: a live one does. */
  readonly knowsUrls?: boolean;
  /** The capabilities that this request's client declares now. */
  readonly capabilities: JsonObject;
  /** Fires when the client goes away. */
  readonly signal?: AbortSignalLike;
  /** The request's header `Idempotency-Key`: of one that begins a call. */
  readonly idempotencyKey?: string;
  /** Where an anonymous caller's request comes from, for the limits. */
  readonly address?: string;
  /** About how many bytes of memory the request takes as it was sent: what serves it may hold all of it. */
  readonly memory?: number;
  /** Whether a person answers its asks on a page. */
  readonly hasPerson?: boolean;
  /** Whether its client brings a call back that was given up without an ask. */
  readonly sheds?: boolean;
  /** Whether the turn continues without its request: others may follow it, and take it over (`takeUp`). */
  readonly goesOn?: boolean;
  /** Whether an ask that its client cannot be asked ends the turn (-32021), where its revision has a code for that. */
  readonly refuses?: boolean;
  /** Whether its client can take a task in reply. */
  readonly takesTasks?: boolean;
  /** The response to a client without tasks, if the call can continue only as a task. */
  readonly taskRefusal?: Response;
  /** The instance that a replay runs in, where it is not to be one of its own. */
  readonly home?: () => Promise<Instance>;
  /** Asks the server of a new call whether to refuse it; true if the client has that refusal already. */
  readonly isRefused?: (instance: Instance) => boolean | Promise<boolean>;
  /** Sends a notification; where the reply is read from the log, one that is not in it. */
  notify(notification: JsonObject): void;
  /** Called once a resumed turn has started in this process. `cancel` ends its call. */
  begun?(cancel: (reason?: string) => void): void;
  /** Whether its reply is read from the call's log: asks, notifications and the response go there alone. */
  readonly isLogged?: true;
  /** Called before the response is in the log: stores what other processes must know by then. */
  beforeEnd?(response: Response): Promise<unknown> | undefined;
  /** Live revisions: an ask goes out. */
  ask?(ask: OpenAsk): void;
  withdraw?(ask: OpenAsk): void;
}

/** One instance of the user's server, initialized with a client's capabilities and identity. */
export interface Instance {
  /**
   * Sends a request into the server; its asks, notifications and response reach `frame`.
   * @param context the facts of the request besides its params
   */
  call(
    frame: Frame,
    request: { method: string; params: JsonObject; id: string | number },
    context: InstanceContext,
  ): void;
  /** A new turn of a call that is already in: its credentials and progress token are this request's from now on. */
  refresh(frame: Frame, context: InstanceContext): void;
  /** Aborts the request's signal in the server; nothing of it is heard any more. */
  cancel(frame: Frame, reason?: string): void;
  /**
   * Ends it: cleanup runs, and the server is closed unless a frame of it is unfinished (invariant 1).
   * @param frame the one that is over; an unfinished one is let go of in a server that other calls use
   * @param why the reason that its request is cancelled there with; absent where the server runs on in this process
   */
  release(unfinished: boolean, frame?: Frame, why?: string): void;
}
