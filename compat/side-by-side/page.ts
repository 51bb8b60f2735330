/** The page of a comparison: one file, with everything in it. */
import { readFileSync } from 'node:fs';
import type { Comparison } from './compare.ts';
import type { LiveState } from './live.ts';

/** Where the comparison stands in the page that `scripts/build.mjs` makes. */
const PLACE = '"mcp-await comparison"';

/** Beside this file once it is built; from the source, where the build has put it. */
const BUILT = import.meta.url.endsWith('.ts') ? '../../dist/compat/side-by-side/page.html' : './page.html';

/** @param shown a comparison, or the state of a live play, which the page then follows */
export function pageOf(shown: Comparison | LiveState): string {
  const page = readFileSync(new URL(BUILT, import.meta.url), 'utf8');
  // A script ends at its first end tag, in whatever string that stands.
  const data = JSON.stringify(shown, (_key, value: unknown) =>
    value instanceof RegExp ? value.source : value,
  );
  return page.replace(PLACE, () => data.replaceAll('<', '\\u003c'));
}
