/**
 * The SDKs' checks of an answer (invariant 12): an answer that they would reject is refused, or asked for again, before
 * a tool's `await` sees it. The result schemas are SDK v2's; v1's accept the same.
 */
import { isSpecType } from '@modelcontextprotocol/server';
import { isObject, type JsonObject, memoryOf, objectOf, reasonOf } from '../base/values.ts';
import type { AnswerCheck } from '../call/ask/answer.ts';
import type { Validator } from './validator.ts';

/**
 * How much work a schema of another server can make. A reference is evaluated wherever it stands: thirty definitions
 * that each refer to the next one twice are 2 KB, and took 40 s and more. So a schema that is not this process's own is
 * counted first, with its references followed, each definition once.
 */

/** Most subschemas, and values to compare with, of a form: one of a hundred fields has a thousand. */
export const MOST_PARTS = 2_000;
/** Keywords whose references depend on where they are evaluated. */
const DYNAMIC = ['$dynamicRef', '$recursiveRef'];

/** How many subschemas and values an evaluation meets; infinite with a cycle, or a reference to elsewhere. */
export function partsOf(schema: JsonObject): number {
  const partsOfPattern = (pattern: string): number => Math.ceil(instructionsOf(pattern) / PATTERN_PART);
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
    // So is code for a subschema inside of that for the one around it.
    sum += Math.floor(sum / NESTED);
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
/** The square of so many nested alternatives does, and so many subschemas once more for each that they are inside of. */
const NESTED = 100;

function lengthOf(text: string): number {
  return Math.floor(text.length / TEXT_PART);
}

/** Instructions of a pattern that take as long as a subschema. */
const PATTERN_PART = 4;
/** Instructions of a class of Unicode's, and of a character in a class. */
const UNICODE_CLASS = 10;
const CLASS_CHARACTER = 0.1;

const REPEAT = /\{(\d+)(?:,(\d*))?\}/y;

/** Instructions of a compiled pattern, about: what is repeated so often is compiled so often. */
function instructionsOf(pattern: string): number {
  /** Of the groups that are open. */
  const outer: number[] = [];
  let size = 1;
  /** Of what a repeat would repeat. */
  let last = 0;
  let isClass = false;
  for (let at = 0; at < pattern.length; at += 1) {
    const char = pattern[at];
    const next = char === '\\' ? pattern[++at] : undefined;
    const isUnicode = next === 'p' || next === 'P';
    REPEAT.lastIndex = at;
    const repeat = char === '{' && !isClass ? REPEAT.exec(pattern) : null;
    if (isClass) {
      isClass = char !== ']';
      last += isUnicode ? UNICODE_CLASS : CLASS_CHARACTER;
      if (!isClass) size += last;
    } else if (repeat !== null) {
      const [text, least, most = ''] = repeat;
      const times = Math.max(Number(least), Number(most), 1);
      at += text.length - 1;
      size += last * (times - 1);
      last *= times;
    } else if (char === '(') {
      outer.push(size);
      size = 1;
    } else if (char === ')') {
      last = size;
      size += outer.pop() ?? 0;
    } else {
      isClass = char === '[';
      last = isUnicode ? UNICODE_CLASS : 1;
      if (!isClass) size += last;
    }
  }
  // What is not closed is an error, which is found at its end.
  return outer.reduce((sum, group) => sum + group, size) + (isClass ? last : 0);
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

// --- answers ---

export interface CheckOptions {
  /** Longest content of an answer, in bytes of JSON. */
  readonly longest: number;
  /** Whether schemas come from a server elsewhere, which may mean harm. */
  readonly isForeign: boolean;
}

/** Characters of JSON for a byte in memory, at most: those of an escaped control character. */
const LONGEST = 6;
/**
 * Parts of a schema times bytes of content, as estimated: a tenth of a second, where each part looks at all the content.
 */
const MOST_WORK = 20_000_000;

/**
 * @param compiling generates code for each schema, which some schemas and some runtimes do not allow
 * @param evaluating is asked where that fails
 */
export function answerCheck(
  compiling: Validator,
  evaluating: Validator,
  { longest, isForeign }: CheckOptions,
): AnswerCheck {
  const judge = (schema: JsonObject, content: unknown): boolean => {
    let validate: ReturnType<Validator['getValidator']>;
    try {
      validate = compiling.getValidator(schema);
    } catch {
      validate = evaluating.getValidator(schema);
    }
    return validate(content).valid;
  };
  return {
    isResult(method, params, value) {
      switch (method) {
        case 'elicitation/create':
          return isPlainAnswer(value) || isSpecType.ElicitResult(value);
        case 'sampling/createMessage':
          return params.tools === undefined
            ? isSpecType.CreateMessageResult(value)
            : isSpecType.CreateMessageResultWithTools(value);
        case 'roots/list':
          return isSpecType.ListRootsResult(value);
        default:
          return true;
      }
    },
    keeps(schema, content) {
      const memory = memoryOf(content);
      // The journal has no room for longer content. Only content that could be so long is measured as JSON.
      const isLong = memory * LONGEST > longest && JSON.stringify(content).length > longest;
      if (isLong || memory === Infinity) return false;
      if (isForeign && partsOf(schema) * memory > MOST_WORK) return false;
      try {
        return judge(schema, content);
      } catch {
        // Content on which the evaluator fails cannot be accepted.
        return false;
      }
    },
    unfit(schema) {
      if (isForeign && !(partsOf(schema) <= MOST_PARTS))
        return `its schema has more than ${MOST_PARTS} parts, or refers to itself or to another document`;
      try {
        // Content that makes the evaluator read the schema of each field: it reads a schema only when it reaches it.
        const names = Object.keys(objectOf(schema.properties));
        judge(schema, Object.fromEntries(names.map((field) => [field, 'x'])));
        return undefined;
      } catch (error) {
        return reasonOf(error);
      }
    },
  };
}

const ACTIONS: ReadonlySet<unknown> = new Set(['accept', 'decline', 'cancel']);

/** Whether a result is as most are, an action and fields of simple types: the schema takes it, and costs more. */
function isPlainAnswer(value: unknown): boolean {
  if (!isObject(value) || !ACTIONS.has(value.action)) return false;
  const { action, content = {}, ...others } = value;
  if (!isObject(content) || Object.keys(others).length > 0) return false;
  return Object.values(content).every(
    (field) => typeof field === 'string' || typeof field === 'boolean' || Number.isFinite(field),
  );
}
