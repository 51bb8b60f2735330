/** The outcome of a turn, for the edge that serves its request. */
import type { AwaitErrorCode } from '../../base/values.ts';
import type { OpenAsk, Response } from '../journal/entries.ts';

/** A turn that ended with asks. */
export interface OpenAskOutcome {
  readonly kind: 'suspended';
  readonly asks: readonly OpenAsk[];
  readonly token: string;
  readonly elsewhere?: true;
}

/** The call has its response, or this request has an error for one. */
export interface Responded {
  readonly kind: 'responded';
  readonly response: Response;
  /**
   * The engine's failure, if the response is the engine's own error; its text never reaches a client. Or why a response
   * is that of its request alone.
   */
  readonly failure?: AwaitErrorCode;
  /** Whether it is the last entry of the call's log. */
  readonly isLogged?: true;
  readonly elsewhere?: true;
}

/** `elsewhere`: another process ran the turn, and responds to its own client. */
export type Outcome =
  /** The call continues as a task. */
  | { readonly kind: 'task'; readonly taskId: string }
  | Responded
  | OpenAskOutcome
  /** The client disconnected or cancelled, so it gets no response. `elsewhere`: while another process ran the call. */
  | { readonly kind: 'gone'; readonly elsewhere?: true };
