/** The content of a state token, and its binding. */
import type { Checkpoint } from '../journal/entries.ts';
import type { Binding } from './binding.ts';

/** The content of a state token, apart from its checks. */
export interface TokenState {
  readonly callId: string;
  /** The position of the checkpoint in the call's journal. */
  readonly at: number;
  /** The checkpoint itself, where tokens carry it. */
  readonly checkpoint?: Checkpoint;
  /** Distinguishes checkpoints at one position: two processes may run one sealed token. */
  readonly mark?: string;
  /** The process that parked the call's frame, where processes reach one another. */
  readonly owner?: string;
  /** When it was sealed, and when it came back; see `AnswerCompletion`. */
  readonly askedAt?: number;
  readonly answeredAt?: number;
}

export interface StateTokens {
  seal(state: TokenState, binding: Binding, expires: number): Promise<string>;
  /** @throws AwaitError `bad-token`; its message is for the logger only */
  open(token: string, binding: Binding): Promise<TokenState>;
}
