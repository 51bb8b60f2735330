/** What a call ends with where too many run here (invariant 14). */

import { AwaitError } from '../../base/values.ts';

export function noRoom(callId: string): AwaitError {
  return new AwaitError(
    'limit',
    `call ${callId} would be one task too many (limits.tasks), or one of its caller's or the anonymous callers' part`,
  );
}

export function noRoomForCalls(): AwaitError {
  return new AwaitError(
    'no-room',
    'too many calls run (limits.calls, argumentBytes), of one caller (limits.callerCalls) or of anonymous ones',
  );
}
