/**
 * Patterns of JSON schemas in linear time: a tool author's `^(a+)+$` blocked a process for six seconds on 28 characters
 * of an answer. `re2js` does not backtrack. Patterns that it cannot express (lookaround, back references) are not
 * checked, and a Node warning names them; the SDKs' validators, which check an answer again, are patched to do the
 * same.
 */
import process from 'node:process';
import { RE2JS } from 're2js';
import { keepNewest } from '../base/bounded.ts';
import { isObject, type JsonObject } from '../base/json.ts';

/** Most patterns that are remembered as warned about. */
const TOLD = 1_000;
const told = new Set<string>();
/** Keywords whose values are data, not schemas. */
const DATA: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples']);
/** Keywords whose values are schemas by name: there `pattern` is a property. */
const NAMED: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions', 'dependentSchemas']);

interface Matcher {
  test(value: string): boolean;
}

/**
 * Ajv's option `code.regExp`: compiles a pattern with re2js.
 * @throws SyntaxError for an invalid pattern
 */
const linearRegExp = Object.assign(
  (pattern: string): Matcher => {
    try {
      const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
      return { test: (value) => compiled.matcher(value).find() };
    } catch {
      // Only to see whether it is one: it is never run.
      new RegExp(pattern, 'u');
      tell(pattern);
      return { test: () => true };
    }
  },
  // How Ajv would name it in a module; compiled schemas are written nowhere.
  { code: 'linearRegExp' },
);

/** Has the Ajv instances that a validator of an SDK holds compile patterns in linear time. */
export function makeLinear(validator: object): void {
  for (const held of Object.values(validator)) {
    const { opts } = isObject(held) ? held : {};
    if (isObject(opts) && isObject(opts.code)) opts.code.regExp = linearRegExp;
  }
}

/**
 * A schema without its patterns, for a validator whose regular expressions cannot be replaced.
 * @throws SyntaxError for an invalid pattern
 */
export function withoutPatterns(schema: JsonObject): JsonObject {
  const kept = Object.entries(schema).filter(([keyword, value]) => {
    const patterns =
      keyword === 'pattern' && typeof value === 'string'
        ? [value]
        : keyword === 'patternProperties' && isObject(value)
          ? Object.keys(value)
          : undefined;
    for (const pattern of patterns ?? []) linearRegExp(pattern);
    return patterns === undefined;
  });
  return Object.fromEntries(kept.map(([keyword, value]) => [keyword, keywordWithout(keyword, value)]));
}

function keywordWithout(keyword: string, value: unknown): unknown {
  if (DATA.has(keyword)) return value;
  if (Array.isArray(value)) return value.map((one) => (isObject(one) ? withoutPatterns(one) : one));
  if (!isObject(value)) return value;
  if (!NAMED.has(keyword)) return withoutPatterns(value);
  const named = Object.entries(value);
  return Object.fromEntries(named.map(([name, one]) => [name, isObject(one) ? withoutPatterns(one) : one]));
}

function tell(pattern: string): void {
  if (told.has(pattern)) return;
  told.add(pattern);
  keepNewest(told, TOLD);
  process.emitWarning(
    `mcp-await does not check the pattern ${JSON.stringify(pattern)} of a schema: with lookaround or back references it cannot be checked in linear time`,
  );
}
