/** The process whose heap is measured: it leaves calls suspended, with their frames or without. */
import { createServer } from 'node:http';
import { setImmediate as turn } from 'node:timers/promises';
import { tuned } from '../dist/src/call/limits.js';
import { createAwaitHandler } from '../dist/src/index.js';
import { toNodeHandler } from '../dist/src/node.js';
import { build } from './round-trip/await.mjs';
import { SECRET } from './round-trip/tool.mjs';

const [state, frames] = process.argv.slice(2);
const handler = createAwaitHandler(() => build(), {
  state,
  secrets: [SECRET],
  // Frames that stay parked; all others are dropped.
  ...tuned({ frames: Number(frames), callerBytes: Number.MAX_SAFE_INTEGER }),
});
const server = createServer(toNodeHandler(handler));
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
process.on('message', async () => {
  for (let round = 0; round < 5; round += 1) {
    await turn();
    globalThis.gc();
  }
  process.send({ heap: process.memoryUsage().heapUsed, parked: handler.parked });
});
process.on('disconnect', () => process.exit());
