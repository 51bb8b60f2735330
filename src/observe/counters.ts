/** What happened since the handler was made, as plain numbers: for a metrics page, and for alarms. */
export interface Counters {
  /** Calls that were begun. */
  calls: number;
  /** Requests that went on with a call. */
  resumes: number;
  /** Of these, where the frame was parked here; where another process had it; by leading a new frame. */
  live: number;
  handedOff: number;
  replayed: number;
  /** Turns taken up from an owner that was silent for a lease: each may repeat the steps that were in flight. */
  takenOver: number;
  /** Steps that were done here after their turn was lost: each ran, or runs, elsewhere again under its key. */
  stepsAtLeastOnce: number;
  /** Tokens and session ids that were refused. */
  badTokens: number;
  /** Requests that were refused by `rateLimit`. */
  limitedCalls: number;
  limitedResumes: number;
  limitedBadTokens: number;
}

export function newCounters(): Counters {
  return {
    calls: 0,
    resumes: 0,
    live: 0,
    handedOff: 0,
    replayed: 0,
    takenOver: 0,
    stepsAtLeastOnce: 0,
    badTokens: 0,
    limitedCalls: 0,
    limitedResumes: 0,
    limitedBadTokens: 0,
  };
}
