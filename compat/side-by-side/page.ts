/** The page of a comparison: one file, with everything in it. */
import { readFileSync } from 'node:fs';
import type { Comparison } from './compare.ts';
import type { LiveState } from './live.ts';

/** The text in the page of `scripts/build.mjs` that the comparison replaces. */
const PLACE = '"mcp-await comparison"';

/** Beside this file once it is built; from the source, where the build has put it. */
const BUILT = import.meta.url.endsWith('.ts') ? '../../dist/compat/side-by-side/page.html' : './page.html';

/** @param shown a comparison, or the state of a live play, which the page then follows */
export function pageOf(shown: Comparison | LiveState): string {
  const page = readFileSync(new URL(BUILT, import.meta.url), 'utf8');
  // A script element ends at the first end tag, even inside of a string.
  const data = JSON.stringify(shown, (_key, value: unknown) =>
    value instanceof RegExp ? value.source : value,
  );
  return page.replace(PLACE, () => data.replaceAll('<', '\\u003c'));
}
