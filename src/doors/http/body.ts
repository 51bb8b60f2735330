/** Reads and parses a body, bounded, before it is used. */

import { isTooLong, MOST_DESCRIBED } from '../../base/description.ts';
import { MAX_DEPTH, type Shape, shapeOf, shapeOfText } from '../../base/shape.ts';
import { hasCode, isObject, LONG, objectOf, shareOf } from '../../base/values.ts';
import { REVISION_META } from '../pipe/exchange.ts';
import type { BeginBody } from './bodies.ts';
import type { Inbound, Reply } from './exchange.ts';
import { idOf, messagesOf, rpcError } from './reply.ts';

interface BodyLimits {
  readonly bodyBytes: number;
  readonly bodyValues: number;
}

/** For so many values a body may have one name, or one value outside of a call's arguments. */
const NAMES = 10;
const CHECKED = 50;
/** Values that each message may have besides. */
const OWN = 8;
/** Names that each body may have besides. */
const COMMON = 100;

/**
 * The parsed body of a POST, or the reply that refuses it.
 * @param nextTurn waits for a share of a turn of the event loop
 */
export async function readBody(
  inbound: Inbound,
  { bodyBytes: maxBytes, bodyValues: most }: BodyLimits,
  begin: BeginBody,
  nextTurn: (share: number, text: string) => Promise<void>,
): Promise<{ body: unknown } | { reply: Reply }> {
  // With parameters or without.
  if (!/^application\/json\s*(;|$)/i.test(inbound.header('content-type') ?? '')) {
    return { reply: rpcError(415, -32000, 'Unsupported Media Type: Content-Type must be application/json') };
  }
  const checked = (body: unknown): { body: unknown } | { reply: Reply } => {
    const reply = refuseEnvelope(body, most);
    return reply === undefined ? { body } : { reply };
  };
  if (inbound.parsedBody !== undefined) return checked(inbound.parsedBody);
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
    if (hasCode(error, 'limit')) return { reply: payloadTooLarge(maxBytes) };
    if (hasCode(error, 'no-room')) throw error;
    return { reply: rpcError(400, -32700, 'Parse error: the request body could not be read') };
  }
  await nextTurn(shareOf(text.length), text);
  const refusal = refuseText(text, most);
  if (refusal !== undefined) return { reply: refusal };
  try {
    return checked(JSON.parse(text));
  } catch {
    return { reply: rpcError(400, -32700, 'Parse error: the request body is not valid JSON') };
  }
}

/** Refuses a body that middleware has parsed: it has bounded its bytes, but not its shape. */
export function refuseParsed({ parsedBody }: Inbound, most: number): Reply | undefined {
  return parsedBody ? refuseShape(shapeOf(parsedBody, most, undefined, new Set()), most) : undefined;
}

/** Refuses JSON by its shape, before it is parsed: a million empty objects take half a second. @param most values */
export function refuseText(text: string, most: number): Reply | undefined {
  return refuseShape(shapeOfText(text, most, most / NAMES + COMMON), most);
}

/** Refuses what takes far more time or memory than its bytes: deep nesting, very many values, or different names. */
function refuseShape({ depth, values, names }: Shape, most: number): Reply | undefined {
  if (depth > MAX_DEPTH) return rpcError(400, -32600, 'Invalid Request: the body is nested too deeply');
  if (values <= most && names <= most / NAMES + COMMON) return undefined;
  const what = values > most ? `${most} values` : `${most / NAMES} different names`;
  return rpcError(413, -32000, `Payload Too Large: the body holds more than ${what}`);
}

/**
 * Refuses a body for what schemas would check, one value after the other: one that a schema refuses takes a twentieth of
 * a millisecond. What a client describes itself with is kept with each of its sessions and calls.
 */
function refuseEnvelope(body: unknown, most: number): Reply | undefined {
  let left = most / CHECKED;
  for (const message of messagesOf(body)) {
    const { method, params } = objectOf(message);
    const { arguments: args, _meta: meta, name, uri, taskId } = objectOf(params);
    // Headers say them too, and errors repeat them.
    const names = [method, name, uri, taskId, isObject(meta) && meta[REVISION_META]];
    // The SDKs' schemas take any argument of a tool, and look at each one of a prompt.
    const isCall = method === 'tools/call' && isObject(args);
    left -= Math.max(0, shapeOf(message, left + OWN, isCall ? args : undefined).values - OWN);
    const why =
      left < 0
        ? `there are more than ${most / CHECKED} values outside of a call's arguments`
        : names.some((value) => typeof value === 'string' && value.length > LONG)
          ? `a method, name or URI is longer than ${LONG} characters`
          : isTooLong(method === 'initialize' ? params : meta) &&
            `clientInfo and capabilities must not exceed ${MOST_DESCRIBED} bytes, icons apart`;
    if (why !== false) return rpcError(413, -32000, `Payload Too Large: ${why}`, idOf(message));
  }
  return undefined;
}

function payloadTooLarge(maxBytes: number): Reply {
  return rpcError(413, -32000, `Payload Too Large: the request body must not exceed ${maxBytes} bytes`);
}
