/** What streams need of a store, and an implementation in this process's memory. */
import type { Clock } from '../base/values.ts';

export interface StreamRecords {
  /**
   * False when there is another one. A failing store is tried again.
   * @param how `until`: when to give up, in milliseconds since the epoch; default: after a few leases
   * @throws AwaitError `store` when it gives up: the record may or may not be there
   */
  insert(name: string, value: unknown, expires: number, how?: { readonly until?: number }): Promise<boolean>;
  get(name: string): Promise<unknown>;
  /** Overwrites a record. */
  replace(name: string, value: unknown, expires: number): Promise<void>;
  remove(...names: readonly string[]): Promise<void>;
}

const SWEEP_EVERY = 60_000;

export function memoryRecords(clock: Clock): StreamRecords {
  const records = new Map<string, { readonly value: unknown; readonly expires: number }>();
  let swept = clock.elapsed();
  const sweep = (): void => {
    if (clock.elapsed() - swept < SWEEP_EVERY) return;
    swept = clock.elapsed();
    for (const [name, { expires }] of records) if (expires < clock.now()) records.delete(name);
  };
  return {
    async insert(name, value, expires) {
      sweep();
      if (records.has(name)) return false;
      records.set(name, { value, expires });
      return true;
    },
    async get(name) {
      return records.get(name)?.value;
    },
    async replace(name, value, expires) {
      records.set(name, { value, expires });
    },
    async remove(...names) {
      for (const name of names) records.delete(name);
    },
  };
}
