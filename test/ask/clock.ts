/** The clock of all processes that a test has in its own, which it sets ahead. */
import type { ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { vi } from 'vitest';
import { systemClock } from '../../src/base/values.ts';
import type { Answers } from './callers.ts';

/** In milliseconds, of the time and of what counts intervals. */
export const clock = { ahead: 0 };

/** From here on the clock goes as `clock.ahead` says. `vi.restoreAllMocks` ends it. */
export function takeClock(): void {
  clock.ahead = 0;
  vi.spyOn(systemClock, 'now').mockImplementation(() => Date.now() + clock.ahead);
  vi.spyOn(systemClock, 'elapsed').mockImplementation(() => performance.now() + clock.ahead);
}

/** After more than a second. */
export function slowly(answer: ElicitResult): Answers {
  return () => {
    clock.ahead += 1_500;
    return answer;
  };
}
