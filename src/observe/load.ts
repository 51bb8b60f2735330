/** The event loop's delay in this process, for shedding calls. */
import { monitorEventLoopDelay } from 'node:perf_hooks';

/** How often the event loop's delay is sampled, in milliseconds; a sample is the delay beyond that. */
const RESOLUTION = 20;
/** Samples older than this, in milliseconds, do not count. */
const WINDOW = 1_000;

export interface LoadWatch {
  /** Whether one look in ten of the last second was late by more than the limit. */
  overloaded(): boolean;
  stop(): void;
}

/** @param limit milliseconds */
export function watchLoad(limit: number): LoadWatch {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION });
  histogram.enable();
  let late = 0;
  const timer = setInterval(() => {
    late = histogram.percentile(90) / 1e6 - RESOLUTION;
    histogram.reset();
  }, WINDOW);
  timer.unref();
  return {
    overloaded: () => late > limit,
    stop: () => {
      clearInterval(timer);
      histogram.disable();
    },
  };
}
