/**
 * JSON schemas in linear time. A tool author's pattern `^(a+)+$` blocked a process for six seconds on 28 characters of
 * an answer, Ajv's `format: 'url'` for 145 s on a megabyte, and its `uniqueItems` for 22 s on 90,000 items. `re2js` does
 * not backtrack. Patterns that it cannot express (lookaround, back references) are not
 * checked, and a Node warning names them; the SDKs' validators, which check an answer again, are patched to do the
 * same.
 */
import process from 'node:process';
import { RE2JS } from 're2js';
import { canonical, isObject, type JsonObject, keepNewest, objectOf } from '../base/values.ts';

/** Most patterns that are remembered as warned about. */
const TOLD = 1_000;
const told = new Set<string>();
/** Keywords whose values are data, not schemas. */
const DATA: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples']);
/** Keywords whose values are schemas by name: there `pattern` is a property. */
const NAMED: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions', 'dependentSchemas']);

/** Instructions of a pattern times characters of a text that may be matched at once: a tenth of a second, about. */
const MOST_STEPS = 4_000_000;
/** Steps that are left to what is checked now; undefined at first. */
let left: number | undefined;

/** Of what is checked now, the texts for which no steps are left do not match. That is all answers of one message. */
function steps(): number {
  if (left === undefined) {
    queueMicrotask(() => {
      left = undefined;
    });
    left = MOST_STEPS;
  }
  return left;
}

/** Patterns of schemas that are compiled, the newest. */
const compiled = new Map<string, Matcher>();
const COMPILED = 500;

interface Matcher {
  test(value: string): boolean;
  /** The pattern. */
  toString(): string;
}

/**
 * Ajv's option `code.regExp`: compiles a pattern with re2js.
 * @throws SyntaxError for an invalid pattern
 */
const linearRegExp = Object.assign(
  (pattern: string): Matcher => {
    const known = compiled.get(pattern);
    if (known !== undefined) return known;
    // Ajv keeps patterns by their text.
    const text = (): string => pattern;
    let matcher: Matcher = { test: () => true, toString: text };
    try {
      const program = RE2JS.compile(RE2JS.translateRegExp(pattern));
      const size = program.programSize();
      const test = (value: string): boolean => {
        left = steps() - size * (value.length + 1);
        return left >= 0 && program.matcher(value).find();
      };
      matcher = { test, toString: text };
    } catch {
      // Only to see whether it is one: it is never run.
      new RegExp(pattern, 'u');
      tell(pattern);
    }
    keepNewest(compiled.set(pattern, matcher), COMPILED);
    return matcher;
  },
  // How Ajv would name it in a module; compiled schemas are written nowhere.
  { code: 'linearRegExp' },
);

/** The parts of an Ajv that are used here. */
interface AjvLike {
  readonly opts: { readonly code: JsonObject };
  readonly formats: Record<string, unknown>;
  removeKeyword(keyword: string): unknown;
  addKeyword(definition: JsonObject): unknown;
}

function isAjv(value: unknown): value is AjvLike {
  if (!isObject(value) || !isObject(value.opts) || !isObject(value.formats)) return false;
  return isObject(value.opts.code) && typeof value.addKeyword === 'function';
}

const linear = new WeakSet<object>();

/** Has the Ajv instances that a validator of an SDK holds check in linear time what is compiled from now on. */
export function makeLinear(validator: object): void {
  for (const held of Object.values(validator)) {
    if (!isAjv(held) || linear.has(held)) continue;
    linear.add(held);
    held.opts.code.regExp = linearRegExp;
    const { url } = held.formats;
    if (url instanceof RegExp) held.formats.url = (text: string) => isUrl(url, text);
    held.removeKeyword('uniqueItems');
    held.addKeyword({
      keyword: 'uniqueItems',
      type: 'array',
      schemaType: 'boolean',
      errors: true,
      validate: hasUniqueItems,
    });
  }
}

/** Longer names of hosts are none (RFC 1035, section 2.3.4); with a port, and as Unicode. */
const LONGEST_HOST = 1_024;

/**
 * Whether a text is a URL to Ajv, whose expression looks for the end of user and password from each colon. Here it is run
 * on each host that there may be alone: after the scheme or an `@`, up to the next `@` or `/`.
 */
function isUrl(expression: RegExp, text: string): boolean {
  const scheme = /^(?:https?|ftp):\/\//i.exec(text)?.[0];
  if (scheme === undefined || /\s/.test(text)) return false;
  const ends = /[@/]/g;
  for (let from = scheme.length; ; ) {
    ends.lastIndex = from;
    const end = ends.exec(text);
    const to = end?.index ?? text.length;
    const isHost = end?.[0] !== '@' && to - from <= LONGEST_HOST;
    if (isHost && expression.test(scheme + text.slice(from, to))) return true;
    // A user has a name.
    const next = text.indexOf('@', Math.max(to, scheme.length + 1));
    if (next < 0) return false;
    from = next + 1;
  }
}

/** The keyword, with Ajv's own message: the last item that repeats another, and the last of those. */
const hasUniqueItems = Object.assign(
  (isOn: boolean, items: readonly unknown[]): boolean => {
    hasUniqueItems.errors = [];
    if (!isOn) return true;
    const last = new Map<string, number>();
    let repeated: readonly [number, number] | undefined;
    items.forEach((item, index) => {
      const text = canonical(item);
      const before = last.get(text);
      if (before !== undefined) repeated = [index, before];
      last.set(text, index);
    });
    if (repeated === undefined) return true;
    const [i, j] = repeated;
    const message = `must NOT have duplicate items (items ## ${j} and ${i} are identical)`;
    hasUniqueItems.errors = [{ keyword: 'uniqueItems', params: { i, j }, message }];
    return false;
  },
  { errors: [] as JsonObject[] },
);

/**
 * A schema without its patterns, `format: 'url'` and `uniqueItems`, for a validator whose checks of them cannot be
 * replaced.
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
    return patterns === undefined && keyword !== 'uniqueItems' && !(keyword === 'format' && value === 'url');
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

/**
 * What `withoutPatterns` left out, checked in linear time wherever a value is in any case: in properties, items and
 * `allOf`. Patterns and unique items under a condition or behind a reference are not checked.
 * @returns undefined where there is nothing to check
 */
export function patternsOf(schema: JsonObject): ((value: unknown) => boolean) | undefined {
  const { pattern, uniqueItems, properties, items, allOf } = schema;
  const checks: ((value: unknown) => boolean)[] = [];
  // Before 2019-09 the neighbours of a reference did not count.
  if (schema.$ref !== undefined) return undefined;
  if (typeof pattern === 'string') {
    const matcher = linearRegExp(pattern);
    checks.push((value) => typeof value !== 'string' || matcher.test(value));
  }
  if (uniqueItems === true) checks.push((value) => !Array.isArray(value) || hasUniqueItems(true, value));
  const each = isObject(items) ? patternsOf(items) : undefined;
  if (each !== undefined) checks.push((value) => !Array.isArray(value) || value.every(each));
  for (const [name, inner] of Object.entries(objectOf(properties))) {
    const check = isObject(inner) ? patternsOf(inner) : undefined;
    if (check !== undefined)
      checks.push((value) => !isObject(value) || !Object.hasOwn(value, name) || check(value[name]));
  }
  for (const part of Array.isArray(allOf) ? allOf : []) {
    const check = isObject(part) ? patternsOf(part) : undefined;
    if (check !== undefined) checks.push(check);
  }
  if (checks.length === 0) return undefined;
  return (value) => checks.every((check) => check(value));
}

function tell(pattern: string): void {
  if (told.has(pattern)) return;
  told.add(pattern);
  keepNewest(told, TOLD);
  process.emitWarning(
    `the pattern ${JSON.stringify(pattern)} of a schema is not checked: lookaround and back references may never end`,
  );
}
