/** Event counts since the handler was made, as plain numbers: for a metrics page, and for alarms. */
export interface Counters {
  /** Calls that were begun. */
  calls: number;
  /** Requests that went on with a call. */
  resumes: number;
  /** Of these, where the frame was parked here; where another process had it; by leading a new frame. */
  live: number;
  handedOff: number;
  replayed: number;
  /** Turns taken over from an owner that was silent for a lease: each may repeat the steps that were running. */
  takenOver: number;
  /** Calls that were given up to another process. */
  shed: number;
  /** Steps that were done here after their turn was lost: each ran, or runs, elsewhere again under its key. */
  stepsAtLeastOnce: number;
  /** Calls and turns that ended with a JSON-RPC error. */
  errors: number;
  /**
   * Event streams opened by a POST; by a GET, for messages outside of requests; and by a GET that resumes a broken one.
   */
  postStreams: number;
  getStreams: number;
  resumedStreams: number;
  /** Connections of a stream that were broken off: the client did not read, the stream expired, the store failed. */
  brokenStreams: number;
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
    shed: 0,
    stepsAtLeastOnce: 0,
    errors: 0,
    postStreams: 0,
    getStreams: 0,
    resumedStreams: 0,
    brokenStreams: 0,
    badTokens: 0,
    limitedCalls: 0,
    limitedResumes: 0,
    limitedBadTokens: 0,
  };
}
