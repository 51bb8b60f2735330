/** Headers that repeat facts of the body, so that proxies need not parse it (SEP-2243). */
import { isObject, type JsonObject } from '../../base/values.ts';
import type { ClientRequest } from '../message.ts';

/** The methods with a name, and the member that holds it: SEP-2243's table, and the Tasks extension's rows. */
const NAMED: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
]);

/** The path of an argument, and the end of its header's name. */
interface Mirrored {
  readonly path: readonly string[];
  readonly header: string;
}

/** RFC 9110, section 5.1. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Annotations may say these; the conformance suite calls tools with `number` too, though they are in no list. */
const TYPES: ReadonlySet<unknown> = new Set(['string', 'integer', 'boolean']);
/** Members of a schema whose values are data. */
const DATA: ReadonlySet<string> = new Set(['const', 'default', 'enum', 'examples']);

/** Arguments that tools mirror in headers (`x-mcp-header` in their schemas), for listed tools. */
export class RequestHeaders {
  readonly #mirrored = new Map<string, readonly Mirrored[]>();

  /**
   * @param result of `tools/list`
   * @param drop called with each tool whose annotations are invalid, and why
   * @returns the result without these, as the revision wants it
   */
  learn(result: JsonObject, drop: (tool: string, why: string) => void): JsonObject {
    if (!Array.isArray(result.tools)) return result;
    const tools = result.tools.filter((tool) => {
      if (!isObject(tool) || typeof tool.name !== 'string') return true;
      const { mirrored, wrong } = annotationsIn(tool.inputSchema);
      this.#mirrored.set(tool.name, mirrored);
      if (wrong !== undefined) drop(tool.name, wrong);
      return wrong === undefined;
    });
    return { ...result, tools };
  }

  /** @returns values by names in lower case */
  of({ method, params = {} }: ClientRequest): Record<string, string> {
    const name: unknown = params[NAMED.get(method) ?? ''];
    const headers: Record<string, string> = { 'mcp-method': method };
    if (typeof name !== 'string') return headers;
    headers['mcp-name'] = headerValue(name);
    for (const { path, header } of method === 'tools/call' ? (this.#mirrored.get(name) ?? []) : []) {
      const value = path.reduce<unknown>((at, key) => (isObject(at) ? at[key] : undefined), params.arguments);
      if (isMirrorable(value)) headers[`mcp-param-${header.toLowerCase()}`] = headerValue(String(value));
    }
    return headers;
  }
}

interface Annotations {
  readonly mirrored: readonly Mirrored[];
  /** Why the tool is none that a client may list. */
  readonly wrong?: string;
}

/** SEP-2243: on arguments that are reached through `properties` alone, each with a type and a name of its own. */
function annotationsIn(inputSchema: unknown): Annotations {
  const mirrored: Mirrored[] = [];
  const names = new Set<string>();
  let wrong: string | undefined;
  /** @param path of the argument; undefined elsewhere in the schema */
  const visit = (schema: unknown, path: readonly string[] | undefined): void => {
    if (Array.isArray(schema)) for (const one of schema) visit(one, undefined);
    if (!isObject(schema)) return;
    const { 'x-mcp-header': header, type } = schema;
    if (header !== undefined) {
      const name = typeof header === 'string' && TOKEN.test(header) ? header : undefined;
      const isTwice = name !== undefined && names.has(name.toLowerCase());
      if (path === undefined || path.length === 0) wrong ??= 'x-mcp-header stands where no argument is';
      else if (name === undefined) wrong ??= `${JSON.stringify(header)} is no name of a header`;
      else if (isTwice) wrong ??= `the header ${name} is named twice`;
      else if (!TYPES.has(type))
        wrong ??= `the header ${name} mirrors a value that is no string, integer or boolean`;
      if (name !== undefined && path !== undefined && path.length > 0 && !isTwice) {
        names.add(name.toLowerCase());
        mirrored.push({ path, header: name });
      }
    }
    for (const [key, inner] of Object.entries(schema)) {
      if (key === 'properties' && isObject(inner))
        for (const [name, one] of Object.entries(inner)) visit(one, path && [...path, name]);
      else if (!DATA.has(key)) visit(inner, undefined);
    }
  };
  visit(inputSchema, []);
  return { mirrored, ...(wrong !== undefined && { wrong }) };
}

function isMirrorable(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value) && Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  return typeof value === 'string' || typeof value === 'boolean';
}

/** As it is where a header can hold it, else as base64 of its UTF-8. */
export function headerValue(value: string): string {
  const isPlain = /^[\t\x20-\x7e]+$/.test(value) && value === value.trim();
  const looksEncoded = value.startsWith('=?base64?') && value.endsWith('?=');
  if (isPlain && !looksEncoded) return value;
  return `=?base64?${btoa(String.fromCodePoint(...new TextEncoder().encode(value)))}?=`;
}
