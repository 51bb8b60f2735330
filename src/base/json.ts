import { createHash } from 'node:crypto';

/** A JSON value, which a journal can hold. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Plain JSON objects as on the wire: properties may be absent, and are `unknown` until checked. */
export type JsonObject = Record<string, unknown>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Whether `JSON.parse(JSON.stringify(value))` would give the value back. Properties that are `undefined` count as
 * absent; a Date, a Map, an instance of a class, a BigInt, NaN and cycles are not JSON.
 * @param deepest how many objects and arrays may be inside of one another
 */
export function isJson(value: unknown, deepest = Number.POSITIVE_INFINITY): boolean {
  return isJsonIn(value, [], deepest);
}

function isJsonIn(value: unknown, ancestors: readonly object[], deepest: number): boolean {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return true;
    case 'number':
      return Number.isFinite(value);
    case 'object':
      break;
    default:
      return false;
  }
  if (value === null) return true;
  if (ancestors.includes(value) || ancestors.length >= deepest) return false;
  const path = [...ancestors, value];
  if (Array.isArray(value)) return value.every((item) => isJsonIn(item, path, deepest));
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  if ('toJSON' in value) return false;
  return Object.values(value).every((item) => item === undefined || isJsonIn(item, path, deepest));
}

/** JSON with the keys of every object in order, so that equal values give equal text. */
export function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_key, inner: unknown) => {
      if (!isObject(inner)) return inner;
      const sorted: [string, unknown][] = Object.keys(inner)
        .sort()
        .map((key) => [key, inner[key]]);
      return Object.fromEntries(sorted);
    }) ?? 'null'
  );
}

/** 96 bits of SHA-256 over the canonical JSON: enough to distinguish a call's own questions and answers. */
export function digest(value: unknown): string {
  return createHash('sha256').update(canonical(value)).digest('base64url').slice(0, 16);
}

/**
 * Whether a tool's result can be written as JSON at all (a BigInt or a cycle cannot): stores and wires take nothing
 * else.
 */
export function isWritable(value: unknown): boolean {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}
