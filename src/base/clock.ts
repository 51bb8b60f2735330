/**
 * Time as the engine sees it: the wall clock, which may jump; a monotonic one, for measuring silence; and "later". It
 * is a parameter, so that a simulation can crash, freeze and skew a process at any moment.
 */

export interface Timer {
  cancel(): void;
  /** Lets the process end although the timer is still to come. */
  unref(): Timer;
}

export interface Clock {
  /** Milliseconds since the epoch. It may jump either way. */
  now(): number;
  /** Milliseconds since some moment of this process. It never goes back. */
  elapsed(): number;
  after(milliseconds: number, fn: () => void): Timer;
  /** In a later turn of the event loop. */
  soon(fn: () => void): void;
}

/** Node's longest timer, in milliseconds. */
const LONGEST = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after: (milliseconds, fn) => {
    const timeout = setTimeout(fn, Math.min(milliseconds, LONGEST));
    const timer: Timer = {
      cancel: () => clearTimeout(timeout),
      unref: () => {
        timeout.unref();
        return timer;
      },
    };
    return timer;
  },
  soon: (fn) => void setImmediate(fn),
};

export function sleep(clock: Clock, milliseconds: number): Promise<void> {
  return new Promise((resolve) => clock.after(milliseconds, resolve));
}

/** Calls again and again, each time that long after the last; it keeps no process alive. */
export function every(clock: Clock, milliseconds: number, fn: () => void): Timer {
  let timer: Timer;
  const arm = (): void => {
    timer = clock.after(milliseconds, () => {
      arm();
      fn();
    });
    timer.unref();
  };
  arm();
  const handle: Timer = { cancel: () => timer.cancel(), unref: () => handle };
  return handle;
}

/** The next turn of the event loop: others have theirs first. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => systemClock.soon(resolve));

/** Waits until a promise settles, either way, or `wait` milliseconds have passed. */
export async function within(clock: Clock, wait: number, promise: Promise<unknown>): Promise<void> {
  const timer = await new Promise<Timer>((resolve) => {
    const armed = clock.after(wait, () => resolve(armed));
    const over = (): void => resolve(armed);
    promise.then(over, over);
  });
  timer.cancel();
}
