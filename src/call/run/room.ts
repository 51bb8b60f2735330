/** How many tasks run in this process: of each known caller, and of all who have no name (invariant 14). */

import { Quota } from '../../base/quota.ts';
import { AwaitError } from '../../base/values.ts';
import type { Limits } from '../limits.ts';

export function taskRoom({ tasks, callerTasks, anonymousTasks }: Limits): Quota {
  return new Quota({ all: tasks, caller: callerTasks, anonymous: anonymousTasks });
}

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
