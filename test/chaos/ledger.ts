/** The ledger outside of the system: records the events that processes send, and nothing else. */
import { createServer } from 'node:http';
import { listen } from '../e2e/harness.ts';
import { clock, type Event } from './events.ts';

export interface Ledger {
  readonly url: string;
  readonly events: readonly Event[];
  close(): void;
}

/** @param before awaited before the sender of an event is told that it is recorded */
export async function openLedger(before: (event: Event) => Promise<void>): Promise<Ledger> {
  const events: Event[] = [];
  const server = createServer(async (req, res) => {
    let text = '';
    try {
      for await (const chunk of req) text += chunk;
    } catch {
      // Its sender was killed while it wrote; an incomplete event does not count.
      return;
    }
    const event = { ...(JSON.parse(text) as Event), received: clock() };
    events.push(event);
    await before(event);
    res.end();
  });
  // Connections of processes that are stopped for a while are kept.
  server.keepAliveTimeout = 60_000;
  const url = await listen(server);
  return {
    url,
    events,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
