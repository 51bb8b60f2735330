/** Reads and parses a body, bounded, before it is used. */

import { isTooLong, MOST_DESCRIBED } from '../../base/description.ts';
import { MAX_DEPTH, type Shape, shapeOf, shapeOfText } from '../../base/shape.ts';
import { AwaitError, isObject, type JsonObject, type LoopTurns } from '../../base/values.ts';
import type { BeginBody } from './bodies.ts';
import type { Inbound, Reply } from './exchange.ts';
import { idOf, messagesOf, rpcError } from './reply.ts';

/** `application/json`, with parameters or without. */
function isJsonType(contentType: string | undefined): boolean {
  return /^application\/json\s*(;|$)/i.test(contentType ?? '');
}

interface BodyLimits {
  readonly bodyBytes: number;
  readonly bodyValues: number;
}

/** Texts that are longer are parsed, and then handled, one in a turn of the event loop. */
const LONG = 65_536;

/**
 * The parsed body of a POST, or the reply that refuses it.
 * @param turns of the event loop, for long ones
 */
export async function readBody(
  inbound: Inbound,
  { bodyBytes: maxBytes, bodyValues: most }: BodyLimits,
  begin: BeginBody,
  turns: LoopTurns,
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
  if (text.length > LONG) await turns.next();
  const refusal = refuseText(text, most);
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

/** Refuses JSON by its shape, before it is parsed: a million empty objects take half a second. @param most values */
export function refuseText(text: string, most: number): Reply | undefined {
  return refuseShape(shapeOfText(text, most), most);
}

/** Refuses what takes far more time or memory than its bytes: deep nesting, and very many values. */
function refuseShape({ depth, values }: Shape, most: number): Reply | undefined {
  if (depth > MAX_DEPTH) return rpcError(400, -32600, 'Invalid Request: the body is nested too deeply');
  if (values <= most) return undefined;
  return rpcError(413, -32000, `Payload Too Large: the body holds more than ${most} values`);
}

/** Refuses a message by what `excessOf` says of it. */
function refuseEnvelope(body: unknown, most: number): Reply | undefined {
  for (const message of messagesOf(body)) {
    if (!isObject(message) || !isObject(message.params)) continue;
    const why = excessOf(message.params, message.method === 'initialize', most);
    if (why !== false) return rpcError(413, -32000, `Payload Too Large: ${why}`, idOf(message));
  }
  return undefined;
}

/**
 * What of a request is too much, if anything. A schema checks each name of the arguments, and each value of `initialize`
 * and of `_meta`, for microseconds. What a client describes itself with is kept with each of its sessions and calls.
 */
function excessOf(params: JsonObject, isFirst: boolean, most: number): string | false {
  const { arguments: args, _meta: meta } = params;
  const checked = isFirst ? params : meta;
  const what = isFirst ? 'initialize' : '_meta';
  if (shapeOf(checked, most).values > most) return `${what} holds more than ${most} values`;
  if (isObject(args) && Object.keys(args).length > most) return `there are more than ${most} arguments`;
  return (
    isTooLong(checked) &&
    `clientInfo and capabilities in ${what} must not exceed ${MOST_DESCRIBED} bytes, icons apart`
  );
}

function payloadTooLarge(maxBytes: number): Reply {
  return rpcError(413, -32000, `Payload Too Large: the request body must not exceed ${maxBytes} bytes`);
}
