/** Reads and parses a body, bounded, before it is used. */

import { isTooLong, MOST_DESCRIBED } from '../base/description.ts';
import { AwaitError } from '../base/error.ts';
import { isObject } from '../base/json.ts';
import { messagesOf } from './batch.ts';
import type { BeginBody } from './bodies.ts';
import type { Inbound, Reply } from './exchange.ts';
import { idOf, rpcError } from './reply.ts';

/** `application/json`, with parameters or without. */
function isJsonType(contentType: string | undefined): boolean {
  return /^application\/json\s*(;|$)/i.test(contentType ?? '');
}

interface BodyLimits {
  readonly bodyBytes: number;
  readonly bodyValues: number;
}

/** The parsed body of a POST, or the reply that refuses it. */
export async function readBody(
  inbound: Inbound,
  { bodyBytes: maxBytes, bodyValues: most }: BodyLimits,
  begin: BeginBody,
): Promise<{ body: unknown } | { reply: Reply }> {
  if (!isJsonType(inbound.header('content-type'))) {
    return { reply: rpcError(415, -32000, 'Unsupported Media Type: Content-Type must be application/json') };
  }
  if (inbound.parsedBody !== undefined) {
    // The middleware that parsed it has bounded its bytes, but not its shape.
    const { parsedBody: body } = inbound;
    const reply = refuseShape(shapeOf(body, most), most) ?? refuseEnvelope(body, most / 10);
    return reply === undefined ? { body } : { reply };
  }
  // Nothing is decompressed here: a few bytes could become any number of them.
  if (!/^(identity)?$/i.test(inbound.header('content-encoding')?.trim() ?? '')) {
    return { reply: rpcError(415, -32000, 'Unsupported Media Type: send the body without Content-Encoding') };
  }
  const declared = Number(inbound.header('content-length') ?? 0);
  if (declared > maxBytes) return { reply: payloadTooLarge(maxBytes) };
  let text: string;
  try {
    text = await inbound.text(maxBytes, begin);
  } catch (error) {
    const code = error instanceof AwaitError ? error.code : undefined;
    if (code === 'limit') return { reply: payloadTooLarge(maxBytes) };
    if (code === 'no-room') throw error;
    return { reply: rpcError(400, -32700, 'Parse error: the request body could not be read') };
  }
  const refusal = refuseShape(shapeOfText(text, most), most);
  if (refusal !== undefined) return { reply: refusal };
  try {
    const body: unknown = JSON.parse(text);
    const isLong = text.length > Math.min(most / 10, MOST_DESCRIBED);
    const reply = isLong ? refuseEnvelope(body, most / 10) : undefined;
    return reply === undefined ? { body } : { reply };
  } catch {
    return { reply: rpcError(400, -32700, 'Parse error: the request body is not valid JSON') };
  }
}

/** Deeper than any tool's arguments, and far from where recursion ends a process. */
const MAX_DEPTH = 500;

/** Refuses what takes far more time or memory than its bytes: deep nesting, and very many values. */
function refuseShape({ depth, values }: Shape, most: number): Reply | undefined {
  if (depth > MAX_DEPTH) return rpcError(400, -32600, 'Invalid Request: the body is nested too deeply');
  if (values <= most) return undefined;
  return rpcError(
    413,
    -32000,
    `Payload Too Large: the body holds more than ${most} values (limits.bodyValues)`,
  );
}

/**
 * Refuses an `initialize` or a `_meta` of very many values, since a schema checks each of them, for microseconds, and a
 * client that describes itself at length, since that is kept with each of its sessions and calls.
 */
function refuseEnvelope(body: unknown, most: number): Reply | undefined {
  for (const message of messagesOf(body)) {
    if (!isObject(message) || !isObject(message.params)) continue;
    const checked = message.method === 'initialize' ? message.params : message.params._meta;
    const what = message.method === 'initialize' ? 'initialize' : '_meta';
    if (shapeOf(checked, most).values > most) {
      const reason = `Payload Too Large: ${what} holds more than ${most} values`;
      return rpcError(413, -32000, reason, idOf(message));
    }
    if (isTooLong(checked)) {
      const reason = `Payload Too Large: clientInfo and capabilities in ${what} must not exceed ${MOST_DESCRIBED} bytes, icons apart`;
      return rpcError(413, -32000, reason, idOf(message));
    }
  }
  return undefined;
}

interface Shape {
  /** How many objects and arrays are inside of one another. */
  readonly depth: number;
  /** Members of objects and elements of arrays. */
  readonly values: number;
}

/** The shape of a value, level by level, since recursion would overflow at the depths to refuse. It may stop above. */
function shapeOf(value: unknown, most: number): Shape {
  let level: readonly unknown[] = [value];
  let values = 0;
  let depth = 0;
  for (; level.length > 0 && depth <= MAX_DEPTH && values <= most; depth += 1) {
    const next: unknown[] = [];
    for (const one of level) {
      if (typeof one !== 'object' || one === null) continue;
      for (const inner of Object.values(one)) {
        values += 1;
        if (typeof inner === 'object' && inner !== null) next.push(inner);
      }
    }
    level = next;
  }
  return { depth, values };
}

/** The shape of JSON before it is parsed; brackets and commas in strings do not count. */
function shapeOfText(text: string, most: number): Shape {
  const isSmall = !hasMore(text, '{', MAX_DEPTH / 2) && !hasMore(text, '[', MAX_DEPTH / 2);
  if (isSmall && !hasMore(text, ',', most - MAX_DEPTH)) return { depth: 0, values: 0 };
  let depth = 0;
  let deepest = 0;
  // A value follows each comma, and each opening bracket; an empty object or array counts as one that holds a value.
  let values = 0;
  let inString = false;
  for (let index = 0; index < text.length; index += 1) {
    switch (text.charCodeAt(index)) {
      case 0x5c: // a backslash, and what it escapes
        if (inString) index += 1;
        break;
      case 0x22: // a quotation mark
        inString = !inString;
        break;
      case 0x2c: // a comma
        if (!inString) values += 1;
        break;
      case 0x7b: // { and [
      case 0x5b:
        if (inString) break;
        depth += 1;
        values += 1;
        deepest = Math.max(deepest, depth);
        break;
      case 0x7d: // } and ]
      case 0x5d:
        if (!inString) depth -= 1;
        break;
      default:
        break;
    }
    if (depth > MAX_DEPTH || values > 2 * most) break;
  }
  return { depth: deepest, values };
}

/** Whether a character occurs more than `count` times. */
function hasMore(text: string, character: string, count: number): boolean {
  let at = -1;
  for (let found = 0; found <= count; found += 1) {
    at = text.indexOf(character, at + 1);
    if (at < 0) return false;
  }
  return true;
}

function payloadTooLarge(maxBytes: number): Reply {
  return rpcError(413, -32000, `Payload Too Large: the request body must not exceed ${maxBytes} bytes`);
}
