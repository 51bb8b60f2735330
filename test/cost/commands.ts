/** Counts the commands that a Redis of the test's own gets. */
import { createClient } from '@redis/client';
import { expect } from 'vitest';

export interface Cost {
  readonly commands: number;
  readonly trips: number;
  readonly counted: Readonly<Record<string, number>>;
}

/** Commands of this counter. */
const OWN: readonly string[] = ['info', 'config|resetstat'];

export async function commandsOf(url: string) {
  const client = createClient({ url });
  await client.connect();
  return {
    close: () => client.close(),
    /** What others than this counter cost while `run` runs, once no more comes. */
    async costOf(run: () => Promise<unknown>): Promise<Cost> {
      await client.sendCommand(['CONFIG', 'RESETSTAT']);
      let own = 0;
      const count = async (): Promise<Cost> => {
        own += 1;
        const info = await client.info('all');
        const stats = [...info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)];
        const counted = Object.fromEntries(
          stats.flatMap(([, name = '', calls]) => (OWN.includes(name) ? [] : [[name, Number(calls)]])),
        );
        const reads = Number(/^total_reads_processed:(\d+)/m.exec(info)?.[1]);
        const commands = Object.values(counted).reduce((sum, calls) => sum + calls, 0);
        return { commands, trips: reads - own, counted };
      };
      await run();
      let last: Cost | undefined;
      const settled = async (): Promise<boolean> => {
        const before = last;
        last = await count();
        return last.commands === before?.commands;
      };
      await expect.poll(settled, { interval: 10 }).toBe(true);
      return last ?? count();
    },
  };
}
