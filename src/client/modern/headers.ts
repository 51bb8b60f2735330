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

/** The path of an argument, and the end of its header's name, in lower case. */
interface Mirrored {
  readonly path: readonly string[];
  readonly header: string;
}

/** RFC 9110, section 5.1. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;

/** Annotations may say these; the conformance suite calls tools with `number` too, though they are in no list. */
const TYPES: ReadonlySet<unknown> = new Set(['string', 'integer', 'boolean']);
/** Members of a schema whose values are data. */
const DATA: ReadonlySet<string> = new Set(['const', 'default', 'enum', 'examples']);

/** Characters of the paths and names of one server: no request could have as many headers. */
const MOST = 65_536;
/** SEP-2243: on arguments that are reached through `properties` alone, each with a type and a name of its own. */
const RULE = 'each x-mcp-header must name another header, on a string, integer or boolean argument';

/** Arguments that tools mirror in headers (`x-mcp-header` in their schemas), for listed tools. */
export class RequestHeaders {
  readonly #mirrored = new Map<string, readonly Mirrored[]>();
  /** Characters that were added since the map was last cleared. */
  #size = 0;

  /**
   * What was known before is forgotten where it is too much: a server says itself that headers are wrong.
   * @param result of `tools/list`
   * @param drop called with each tool whose annotations are invalid, and why
   * @returns the result without these, as the revision wants it
   */
  learn(result: JsonObject, drop: (tool: string, why: string) => void): JsonObject {
    if (!Array.isArray(result.tools)) return result;
    if (this.#size > MOST) {
      this.#mirrored.clear();
      this.#size = 0;
    }
    const tools = result.tools.filter((tool) => {
      if (!isObject(tool) || typeof tool.name !== 'string') return true;
      const { name, inputSchema } = tool;
      const { mirrored, size, isWrong } = annotationsIn(inputSchema, name.length);
      if ((mirrored.length > 0 || this.#mirrored.has(name)) && this.#size < 2 * MOST) {
        this.#size += size;
        this.#mirrored.set(name, mirrored);
      }
      if (isWrong) drop(name, RULE);
      return !isWrong;
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
      if (typeof value === 'number' ? Math.abs(value) <= Number.MAX_SAFE_INTEGER : TYPES.has(typeof value))
        headers[`mcp-param-${header}`] = headerValue(String(value));
    }
    return headers;
  }
}

interface Annotations {
  readonly mirrored: readonly Mirrored[];
  /** Characters of the tool's name, and of the paths and names. */
  readonly size: number;
  /** Whether a client must leave the tool out of the list. */
  readonly isWrong: boolean;
}

/** @param size of the tool's name */
function annotationsIn(inputSchema: unknown, size: number): Annotations {
  const mirrored: Mirrored[] = [];
  const names = new Set<string>();
  const path: string[] = [];
  let isWrong = false;
  /** @param isReached through `properties` alone, by the path */
  const visit = (schema: unknown, isReached: boolean): void => {
    if (Array.isArray(schema)) for (const one of schema) visit(one, false);
    if (!isObject(schema)) return;
    const { 'x-mcp-header': header, type } = schema;
    if (header !== undefined) {
      const name = typeof header === 'string' ? header.toLowerCase() : '';
      isWrong ||= !TYPES.has(type);
      if (size < MOST) size += name.length + path.join().length;
      if (isReached && path.length > 0 && TOKEN.test(name) && !names.has(name) && size < MOST) {
        names.add(name);
        mirrored.push({ path: [...path], header: name });
      } else isWrong = true;
    }
    for (const [key, inner] of Object.entries(schema)) {
      if (key === 'properties' && isObject(inner)) {
        for (const [name, one] of Object.entries(inner)) {
          path.push(name);
          visit(one, isReached);
          path.pop();
        }
      } else if (!DATA.has(key)) visit(inner, false);
    }
  };
  visit(inputSchema, true);
  return { mirrored, size, isWrong };
}

/** As it is where a header can hold it, else as base64 of its UTF-8. */
export function headerValue(value: string): string {
  const isPlain = /^[\t\x20-\x7e]+$/.test(value) && value === value.trim();
  const looksEncoded = value.startsWith('=?base64?') && value.endsWith('?=');
  if (isPlain && !looksEncoded) return value;
  return `=?base64?${btoa(String.fromCodePoint(...new TextEncoder().encode(value)))}?=`;
}
