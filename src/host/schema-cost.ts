/**
 * How much work a schema of another server can make. A reference is evaluated wherever it stands: thirty definitions
 * that each refer to the next one twice are 2 KB, and took 40 s and more. So a schema that is not this process's own is
 * counted first, with its references followed, each definition once.
 */
import { isObject, type JsonObject } from '../base/json.ts';

/** Most subschemas, and values to compare with, of a form: one of a hundred fields has a thousand. */
export const MOST_PARTS = 5_000;
/** Keywords whose references depend on where they are evaluated. */
const DYNAMIC = ['$dynamicRef', '$recursiveRef'];

/** How many subschemas and values an evaluation meets; infinite with a cycle, or a reference to elsewhere. */
export function partsOf(schema: JsonObject): number {
  const known = new Map<object, number>();
  const count = (part: unknown): number => {
    if (typeof part !== 'object' || part === null) return 1;
    const before = known.get(part);
    if (before !== undefined) return before;
    // Met again below itself, it is a cycle.
    known.set(part, Number.POSITIVE_INFINITY);
    let sum = 1;
    for (const [keyword, value] of Object.entries(part))
      sum += keyword === '$ref' ? target(value) : count(value);
    if (isObject(part) && DYNAMIC.some((keyword) => keyword in part)) sum = Number.POSITIVE_INFINITY;
    known.set(part, sum);
    return sum;
  };
  const target = (reference: unknown): number => {
    const found = typeof reference === 'string' ? resolve(schema, reference) : undefined;
    return found === undefined ? Number.POSITIVE_INFINITY : count(found);
  };
  return count(schema);
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
