/** The page of a comparison: one file, with everything in it. */
import { readFileSync } from 'node:fs';
import type { Comparison } from './compare.ts';

/** Where the comparison stands in the page that `scripts/build.mjs` makes. */
const PLACE = '"mcp-await comparison"';

/** Beside this file once it is built; from the source, where the build has put it. */
const BUILT = import.meta.url.endsWith('.ts') ? '../../dist/compat/side-by-side/page.html' : './page.html';

export function pageOf(comparison: Comparison): string {
  const page = readFileSync(new URL(BUILT, import.meta.url), 'utf8');
  // A script ends at its first end tag, in whatever string that stands.
  const data = JSON.stringify(comparison, (_key, value: unknown) =>
    value instanceof RegExp ? value.source : value,
  );
  return page.replace(PLACE, () => data.replaceAll('<', '\\u003c'));
}
