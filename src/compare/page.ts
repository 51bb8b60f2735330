/** The page of a comparison: one file, with everything in it. */
import { readFileSync } from 'node:fs';
import type { Comparison } from './compare.ts';
import type { LiveState } from './live.ts';

/** The texts in the page of `scripts/build.mjs` that the comparison replaces. */
const PLACE = '"mcp-await comparison"';
const TEXTS = '["mcp-await texts"]';
/** Characters of a text that stands in the page once: each revision has the same result. */
const LONG = 1_000;

/** Beside this file once it is built; from the source, where the build has put it. */
const BUILT = import.meta.url.endsWith('.ts') ? '../../dist/src/compare/page.html' : './page.html';

/** @param shown a comparison, or the state of a live play, which the page then follows */
export function pageOf(shown: Comparison | LiveState): string {
  const page = readFileSync(new URL(BUILT, import.meta.url), 'utf8');
  const texts = new Map<string, number>();
  const data = JSON.stringify(shown, (_key, value: unknown) => {
    if (value instanceof RegExp) return value.source;
    if (typeof value !== 'string' || value.length < LONG) return value;
    const nth = texts.get(value) ?? texts.size;
    texts.set(value, nth);
    return `\uE000${nth}`;
  });
  // A script element ends at the first end tag, even inside of a string.
  const inScript = (json: string): string => json.replaceAll('<', '\\u003c');
  return page
    .replace(PLACE, () => inScript(data))
    .replace(TEXTS, () => inScript(JSON.stringify([...texts.keys()])));
}
