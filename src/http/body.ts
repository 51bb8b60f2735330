/** Reads and parses a body, bounded, before it is used. */
import { AwaitError } from '../base/error.ts';
import type { Bodies } from './bodies.ts';
import type { Inbound, Reply } from './exchange.ts';
import { rpcError } from './reply.ts';

/** `application/json`, with parameters or without. */
function isJsonType(contentType: string | undefined): boolean {
  return /^application\/json\s*(;|$)/i.test(contentType ?? '');
}

/** The parsed body of a POST, or the reply that refuses it. */
export async function readBody(
  inbound: Inbound,
  maxBytes: number,
  bodies: Bodies,
): Promise<{ body: unknown } | { reply: Reply }> {
  if (!isJsonType(inbound.header('content-type'))) {
    return { reply: rpcError(415, -32000, 'Unsupported Media Type: Content-Type must be application/json') };
  }
  if (inbound.parsedBody !== undefined) {
    // The middleware that parsed it has bounded its bytes, but not its depth.
    if (isDeep(inbound.parsedBody)) return { reply: tooDeep() };
    return { body: inbound.parsedBody };
  }
  // Nothing is decompressed here: a few bytes could become any number of them.
  if (!/^(identity)?$/i.test(inbound.header('content-encoding')?.trim() ?? '')) {
    return { reply: rpcError(415, -32000, 'Unsupported Media Type: send the body without Content-Encoding') };
  }
  const declared = Number(inbound.header('content-length') ?? 0);
  if (declared > maxBytes) return { reply: payloadTooLarge(maxBytes) };
  let text: string;
  try {
    text = await inbound.text(maxBytes, bodies);
  } catch (error) {
    const code = error instanceof AwaitError ? error.code : undefined;
    if (code === 'limit') return { reply: payloadTooLarge(maxBytes) };
    if (code === 'no-room') throw error;
    return { reply: rpcError(400, -32700, 'Parse error: the request body could not be read') };
  }
  if (isTooDeep(text)) return { reply: tooDeep() };
  try {
    return { body: JSON.parse(text) as unknown };
  } catch {
    return { reply: rpcError(400, -32700, 'Parse error: the request body is not valid JSON') };
  }
}

/** Deeper than any tool's arguments, and far from where recursion ends a process. */
const MAX_DEPTH = 500;

function tooDeep(): Reply {
  return rpcError(400, -32600, 'Invalid Request: the body is nested too deeply');
}

/** The same for a parsed value, level by level, since recursion would overflow at the depths to refuse. */
function isDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((one) => (typeof one === 'object' && one !== null ? Object.values(one) : []));
    level = level.filter((one) => typeof one === 'object' && one !== null);
  }
  return false;
}

/** Whether objects and arrays are nested too deeply; brackets in strings do not count. */
function isTooDeep(text: string): boolean {
  let depth = 0;
  let inString = false;
  for (let index = 0; index < text.length; index += 1) {
    switch (text.charCodeAt(index)) {
      case 0x5c: // a backslash, and what it escapes
        if (inString) index += 1;
        break;
      case 0x22: // a quotation mark
        inString = !inString;
        break;
      case 0x7b: // { and [
      case 0x5b:
        if (!inString) depth += 1;
        break;
      case 0x7d: // } and ]
      case 0x5d:
        if (!inString) depth -= 1;
        break;
      default:
        break;
    }
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

function payloadTooLarge(maxBytes: number): Reply {
  return rpcError(413, -32000, `Payload Too Large: the request body must not exceed ${maxBytes} bytes`);
}
