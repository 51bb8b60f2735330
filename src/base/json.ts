import crypto from 'node:crypto';

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
export function isJson(value: unknown, deepest = Infinity): boolean {
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

/** One of these makes each character of its string take two bytes. */
const WIDE = /[\u0100-\uffff]/;

/**
 * About how many bytes of memory a JSON value takes: an empty object takes fifty, and two characters of JSON.
 * @returns Infinity for a value with an infinite number: `JSON.parse` makes one of 1e999, and JSON has none
 */
export function memoryOf(value: unknown): number {
  if (typeof value === 'string') return 16 + (WIDE.test(value) ? 2 : 1) * value.length;
  if (typeof value === 'number') return Number.isFinite(value) ? 8 : Infinity;
  if (typeof value !== 'object' || value === null) return 8;
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + 8 + memoryOf(item), 32);
  let sum = 56;
  for (const key of Object.keys(value)) sum += 24 + key.length + memoryOf((value as JsonObject)[key]);
  return sum;
}

/** JSON with the keys of every object in order, so that equal values give equal text. */
export function canonical(value: unknown): string {
  return JSON.stringify(inOrder(value)) ?? 'null';
}

/** A copy with its keys in order; JSON is written faster from that than by a replacer. */
function inOrder(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof (value as JsonObject).toJSON === 'function')
    return inOrder((value as { toJSON(): unknown }).toJSON());
  const copy: JsonObject = {};
  for (const key of Object.keys(value).sort()) {
    const inner = inOrder((value as JsonObject)[key]);
    if (key === '__proto__') Object.defineProperty(copy, key, { value: inner, enumerable: true });
    else copy[key] = inner;
  }
  return copy;
}

/** SHA-256 in base64url; `hash` of node:crypto does it in a third of the time, where it is there (Node 20.12). */
export function sha256(text: string): string {
  return typeof crypto.hash === 'function'
    ? crypto.hash('sha256', text, 'base64url')
    : crypto.createHash('sha256').update(text).digest('base64url');
}

/** 96 bits of SHA-256 over the canonical JSON: enough to distinguish a call's own questions and answers. */
export function digest(value: unknown): string {
  return sha256(canonical(value)).slice(0, 16);
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
