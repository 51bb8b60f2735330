/**
 * The SDKs' checks of an answer (invariant 12): an answer that they would reject is refused, or asked for again, before
 * a tool's `await` sees it. The result schemas are SDK v2's; v1's accept the same.
 */
import { isSpecType } from '@modelcontextprotocol/server';
import { isObject, type JsonObject, memoryOf } from '../base/values.ts';
import type { AnswerCheck } from '../call/ask/answer.ts';
import { MOST_PARTS, partsOf } from './schema-cost.ts';
import type { Validator } from './validator.ts';

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
        judge(schema, probeOf(schema));
        return undefined;
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      }
    },
  };
}

const ACTIONS: ReadonlySet<unknown> = new Set(['accept', 'decline', 'cancel']);

/** Whether a result is as most are, an action and fields of simple types: the schema takes it, and costs more. */
function isPlainAnswer(value: unknown): boolean {
  if (!isObject(value) || !ACTIONS.has(value.action)) return false;
  const { action: _action, content = {}, ...others } = value;
  if (!isObject(content) || Object.keys(others).length > 0) return false;
  return Object.values(content).every(
    (field) => typeof field === 'string' || typeof field === 'boolean' || Number.isFinite(field),
  );
}

/** Content that makes the evaluator read the schema of each field: it reads a schema only when it reaches it. */
function probeOf({ properties }: JsonObject): JsonObject {
  const names = isObject(properties) ? Object.keys(properties) : [];
  return Object.fromEntries(names.map((name) => [name, 'x']));
}
