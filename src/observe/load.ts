/** How busy this process is: how late its event loop, and how full its heap. */
import {
  constants,
  monitorEventLoopDelay,
  PerformanceObserver,
  type PerformanceObserverEntryList,
} from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { AwaitError } from '../base/values.ts';

/** How often the event loop's delay is sampled, in milliseconds; a sample is the delay beyond that. */
const RESOLUTION = 20;
/** Samples older than this, in milliseconds, do not count. */
const WINDOW = 1_000;

export interface LoadWatch {
  /** Whether one look in ten of the last second was late by more than the limit. */
  readonly overloaded: () => boolean;
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

/**
 * The part of the old space that is in use after a full collection, above which the heap is full. V8 ends a process whose
 * collections free little four times in a row above 0.8.
 */
const FULL = 0.7;
/** Bytes of the heap's limit that are the young space's. */
const YOUNG = 50_331_648;
/** How long that is believed, in milliseconds: a heap that is still full then is collected soon. */
const BELIEVED = 5_000;

export interface HeapWatch {
  /** Called at each full collection that leaves the heap full: what can be had again is let go of. */
  readonly onFull: Set<() => void>;
  /** @throws AwaitError `no-room` for a stranger's server instance in a full heap */
  check(principal: string | undefined): void;
  stop(): void;
}

/**
 * Looks at the heap after each full collection, since between two of them it holds what nobody uses. On runtimes that do
 * not tell of collections it is never full.
 */
export function watchHeap(elapsed: () => number): HeapWatch {
  const onFull = new Set<() => void>();
  let full = -Infinity;
  const look = (list: PerformanceObserverEntryList): void => {
    const collections = list.getEntries() as unknown as { readonly detail: { readonly kind: number } }[];
    if (!collections.some(({ detail }) => detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR)) return;
    const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
    const isFull = used > (limit - YOUNG) * FULL;
    full = isFull ? elapsed() : -Infinity;
    if (isFull) for (const letGo of onFull) letGo();
  };
  const { supportedEntryTypes: told = [] } = PerformanceObserver as { supportedEntryTypes?: string[] };
  const observer = told.includes('gc') ? new PerformanceObserver(look) : undefined;
  observer?.observe({ entryTypes: ['gc'] });
  return {
    onFull,
    check: (principal) => {
      if (principal === undefined && elapsed() - full < BELIEVED)
        throw new AwaitError('no-room', 'the heap is full: no server instance is opened for a stranger');
    },
    stop: () => observer?.disconnect(),
  };
}
