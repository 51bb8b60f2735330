/** What all code may know of a revision: who it is served to, and what it can. */

export interface RevisionFacts {
  /** As clients negotiate it, and as the option `revisions` names it. */
  readonly name: string;
  /** The era of hosted servers that it is served from. */
  readonly era: 'legacy' | 'modern';
  readonly can: readonly Ability[];
  /** Whether its sessions speak nothing else. */
  readonly wire?: { readonly isDraft: boolean };
}

export type Ability =
  /** Arrays of messages. */
  | 'batches'
  /** A call may continue as a task. */
  | 'tasks'
  /** Asks are parts of responses: none can go out outside of a call. */
  | 'asks-in-responses'
  /** A client that comes back for a stream is given an event without content first, so that it has an id at once. */
  | 'primes';
