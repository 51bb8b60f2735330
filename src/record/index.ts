/**
 * `import 'mcp-await/record'`: from then on the values that a call's code gets from `Date`, `Math.random`,
 * `crypto.randomUUID` and `fetch` go into the call's journal, so that a replay gets the same values and sends nothing
 * twice. Nothing changes outside of calls, or inside of steps, whose result is recorded anyway.
 * Values are found by the place in the code that asked for them (`place.ts`); `docs/record.md` lists the
 * exceptions.
 */
import { patchClock } from './clock.ts';
import { patchFetch } from './fetch.ts';
import { patchRandom } from './random.ts';

/** Two copies of this package would record everything twice. */
const DONE = Symbol.for('mcp-await.record.1');

const marks = globalThis as { [DONE]?: true };
if (marks[DONE] === undefined) {
  marks[DONE] = true;
  patchClock();
  patchRandom();
  patchFetch();
}
