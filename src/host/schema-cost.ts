/**
 * How much work a schema of another server can make. A reference is evaluated wherever it stands: thirty definitions
 * that each refer to the next one twice are 2 KB, and took 40 s and more. So a schema that is not this process's own is
 * counted first, with its references followed, each definition once.
 */
import { isObject, type JsonObject } from '../base/json.ts';

/** Most subschemas, and values to compare with, of a form: one of a hundred fields has a thousand. */
export const MOST_PARTS = 2_000;
/** Keywords whose references depend on where they are evaluated. */
const DYNAMIC = ['$dynamicRef', '$recursiveRef'];

/** How many subschemas and values an evaluation meets; infinite with a cycle, or a reference to elsewhere. */
export function partsOf(schema: JsonObject): number {
  const known = new Map<object, number>();
  const count = (part: unknown): number => {
    if (typeof part === 'string') return 1 + lengthOf(part);
    if (typeof part !== 'object' || part === null) return 1;
    const before = known.get(part);
    if (before !== undefined) return before;
    // Met again below itself, it is a cycle.
    known.set(part, Infinity);
    let sum = 1;
    for (const [keyword, value] of Object.entries(part)) {
      sum += lengthOf(keyword);
      if (keyword === 'pattern' && typeof value === 'string') sum += partsOfPattern(value);
      else sum += keyword === '$ref' ? target(value) : count(value);
      // Code for each is inside of that for the one before it.
      if (keyword === 'oneOf' && Array.isArray(value)) sum += Math.floor(value.length ** 2 / NESTED);
    }
    if ('patternProperties' in part && isObject(part.patternProperties))
      for (const pattern of Object.keys(part.patternProperties)) sum += partsOfPattern(pattern);
    if (isObject(part) && DYNAMIC.some((keyword) => keyword in part)) sum = Infinity;
    known.set(part, sum);
    return sum;
  };
  const target = (reference: unknown): number => {
    const found = typeof reference === 'string' ? resolve(schema, reference) : undefined;
    return found === undefined ? Infinity : lengthOf(String(reference)) + count(found);
  };
  return count(schema);
}

/** Characters that take as long as a subschema: names and values are written into the code. */
const TEXT_PART = 100;
/** The square of so many nested alternatives does. */
const NESTED = 100;

function lengthOf(text: string): number {
  return Math.floor(text.length / TEXT_PART);
}

/** Characters of a compiled pattern that take as long as a subschema, and how many a class of Unicode's stands for. */
const PATTERN_PART = 50;
const UNICODE_CLASS = 10;

/** What is repeated so often is compiled so often. */
function partsOfPattern(pattern: string): number {
  const repeats = [...pattern.matchAll(/\{(\d+)(?:,(\d*))?\}/g)].reduce(
    (sum, [, least = '1', most = '']) => sum + Math.max(Number(least), Number(most)),
    1,
  );
  const classes = pattern.match(/\\[pP]/g)?.length ?? 0;
  return Math.ceil((repeats * (pattern.length + UNICODE_CLASS * classes)) / PATTERN_PART);
}

/** What a reference inside of a document means; undefined where it is an anchor, or is not inside. */
function resolve(document: JsonObject, reference: string): unknown {
  if (!/^#(?:\/|$)/.test(reference)) return undefined;
  let found: unknown = document;
  for (const token of reference.split('/').slice(1)) {
    const name = decoded(token).replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, name)) return undefined;
    found = (found as JsonObject)[name];
  }
  return found;
}

function decoded(token: string): string {
  try {
    return decodeURIComponent(token);
  } catch {
    return token;
  }
}
