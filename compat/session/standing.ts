/**
 * The calls whose outcomes go to a session's standing stream: sent by the process that ran them, or by the one that has
 * its connection.
 */
import type { Outcome } from '../../src/call/ports.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { followList, goneWith, tellListed } from './follow.ts';
import type { Session } from './session.ts';
import { liveWay, type Source } from './start.ts';

export interface Standing {
  readonly services: Services;
  readonly session: Session;
  readonly source: Source;
  /** The session's instance here; undefined where each call has one of its own. */
  readonly home: (() => Promise<HostInstance>) | undefined;
}

/**
 * Follows them while a connection has the standing stream.
 * @param introduced resolves once the session's client is known, which may have sent `initialize` to another process
 */
export function followStanding(
  { services, session, source, home }: Standing,
  sink: Sink,
  introduced: () => Promise<void> = async () => {},
): void {
  const { calls, standing } = session;
  if (calls === undefined) return;
  void followList(
    {
      services,
      source,
      gone: goneWith(sink),
      caller: () => introduced().then(() => session.caller),
      runs: (callId) => session.runs(callId),
      way: (callId) => liveWay(callId, (message) => void standing.send(message)),
      isTold: (callId) => calls.isTold(callId),
      take: async ({ requestId }, started) => {
        session.keepCall(requestId, started);
        return home?.();
      },
      tell: async ({ id, requestId }, outcome) => {
        await session.settled();
        await tellStanding(session, requestId, outcome, id);
      },
    },
    calls,
  );
}

/** @param listed the call's id, where it is in the session's list */
export function tellStanding(
  { calls, standing }: Session,
  id: string | number,
  outcome: Outcome,
  listed?: string,
): Promise<void> {
  return tellListed(calls, listed, outcome, (response) => standing.send({ jsonrpc: '2.0', id, ...response }));
}
