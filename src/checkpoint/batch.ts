/** Groups operations of one kind: those made in one turn of the event loop, or while a statement runs, are one statement. */
import { inTime, PATIENCE } from './in-time.ts';

export interface Batches<I, R> {
  /** Statements at a time; operations that are made meanwhile wait for the next one. */
  readonly lanes: number;
  /** Of one statement: so many operations, and so many characters unless it is one operation. */
  readonly most: { readonly operations: number; readonly characters: number };
  /** No two operations of a statement have the same key, and they come in the order of their keys. */
  readonly apart: boolean;
  readonly key: (operation: I) => string;
  readonly characters: (operation: I) => number;
  /** @returns the results, in the order of the operations */
  run(operations: readonly I[]): Promise<readonly R[]>;
}

interface Queued<I, R> {
  readonly operation: I;
  /** When its caller stops waiting, by the monotonic clock. */
  readonly until: number;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/** One operation, as a statement with others or of its own. A statement that fails fails for all of its operations. */
export function batched<I, R>(batches: Batches<I, R>): (operation: I) => Promise<R> {
  let waiting: Queued<I, R>[] = [];
  let busy = 0;
  const drain = async (): Promise<void> => {
    while (waiting.length > 0) {
      const { next, left } = split(waiting, batches);
      waiting = left;
      if (next.length === 0) break;
      try {
        const results = await inTime(batches.run(next.map(({ operation }) => operation)));
        for (const [nth, { resolve }] of next.entries()) resolve(results[nth] as R);
      } catch (error) {
        for (const { reject } of next) reject(error);
      }
    }
    busy -= 1;
  };
  return (operation) =>
    new Promise((resolve, reject) => {
      waiting.push({ operation, until: performance.now() + PATIENCE, resolve, reject });
      if (busy === batches.lanes) return;
      busy += 1;
      // Operations of other calls in this turn of the event loop go with it.
      setImmediate(() => void drain());
    });
}

function split<I, R>(waiting: readonly Queued<I, R>[], { most, apart, key, characters }: Batches<I, R>) {
  const now = performance.now();
  const next: Queued<I, R>[] = [];
  const left: Queued<I, R>[] = [];
  const keys = new Set<string>();
  let sum = 0;
  for (const one of waiting) {
    // Its caller has a time-out error already.
    if (one.until <= now) continue;
    const size = characters(one.operation);
    const isFull = next.length === most.operations || (next.length > 0 && sum + size > most.characters);
    if (isFull || (apart && keys.has(key(one.operation)))) {
      left.push(one);
      continue;
    }
    next.push(one);
    keys.add(key(one.operation));
    sum += size;
  }
  // Two processes that write the same keys in different orders would wait for each other.
  if (apart) next.sort((a, b) => (key(a.operation) < key(b.operation) ? -1 : 1));
  return { next, left };
}
