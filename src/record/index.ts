/**
 * `import 'mcp-await/record'`: from then on what the code of a call draws from `Date`, `Math.random`,
 * `crypto.randomUUID` and `fetch` goes into the call's journal, so that a replay draws the same and sends
 * nothing twice. Outside of calls, and inside of steps, whose result is recorded anyway, all is as before.
 *
 * What was drawn is told by the place it was drawn at (`place.ts`); what is not covered is in
 * `docs/guarantees.md`.
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
