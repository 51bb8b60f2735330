/** How many tasks run in this process, and of them of each caller who has a name (invariant 14). */
import { AwaitError } from '../error.ts';
import type { Limits } from './limits.ts';

export class TaskRoom {
  readonly #limits: Pick<Limits, 'tasks' | 'callerTasks'>;
  /** Whose task it is, by what holds its place: a run, or what is about to be one. */
  readonly #held = new Map<object, string | undefined>();
  readonly #ofCaller = new Map<string, number>();

  constructor(limits: Pick<Limits, 'tasks' | 'callerTasks'>) {
    this.#limits = limits;
  }

  /** Whether there is room for one more of this caller's. */
  has(caller: string | undefined): boolean {
    const { tasks, callerTasks } = this.#limits;
    if (this.#held.size >= tasks) return false;
    return caller === undefined || (this.#ofCaller.get(caller) ?? 0) < callerTasks;
  }

  /** Takes a place, whether there is room or not: the task is there. */
  hold(holder: object, caller: string | undefined): void {
    if (this.#held.has(holder)) return;
    this.#held.set(holder, caller);
    if (caller !== undefined) this.#ofCaller.set(caller, (this.#ofCaller.get(caller) ?? 0) + 1);
  }

  leave(holder: object): void {
    const caller = this.#held.get(holder);
    if (!this.#held.delete(holder) || caller === undefined) return;
    const left = (this.#ofCaller.get(caller) ?? 0) - 1;
    if (left > 0) this.#ofCaller.set(caller, left);
    else this.#ofCaller.delete(caller);
  }
}

export function noRoom(callId: string): AwaitError {
  return new AwaitError(
    'limit',
    `call ${callId} would be one task too many: of all that run in this process (limits.tasks), or of its caller's (limits.callerTasks)`,
  );
}
