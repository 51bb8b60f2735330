/** Headers that repeat facts of the body, so that proxies need not parse it (SEP-2243). */
import { type ClientRequest, isObject, type JsonObject } from '../message.ts';

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

/** Arguments that tools mirror in headers (`x-mcp-header` in their schemas), for listed tools. */
export class RequestHeaders {
  readonly #mirrored = new Map<string, readonly Mirrored[]>();

  /** @param result of `tools/list` */
  learn({ tools }: JsonObject): void {
    for (const tool of Array.isArray(tools) ? tools : []) {
      if (isObject(tool) && typeof tool.name === 'string') {
        this.#mirrored.set(tool.name, mirroredIn(tool.inputSchema, []));
      }
    }
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

/** Only arguments that are reached through `properties` alone, as SEP-2243 says. */
function mirroredIn(schema: unknown, path: readonly string[]): Mirrored[] {
  if (!isObject(schema)) return [];
  const header = schema['x-mcp-header'];
  const own = typeof header === 'string' && TOKEN.test(header) && path.length > 0 ? [{ path, header }] : [];
  const properties = isObject(schema.properties) ? Object.entries(schema.properties) : [];
  return [...own, ...properties.flatMap(([key, inner]) => mirroredIn(inner, [...path, key]))];
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
