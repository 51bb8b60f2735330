/** The wire: its name, its headers and its three kinds of events. */
import type { JsonObject } from '../../src/base/values.ts';
import { messageText } from '../../src/doors/http/reply.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import { sseEvent } from '../../src/stream/sse.ts';
import type { Framing } from '../../src/stream/sse-sink.ts';

export const REVISION = 'workspace-sse';
/** Our extension: the id of a GET's stream, which a POST may name to have its response there. */
export const STREAM = 'mcp-stream-id';
export const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache',
};

/** @param isResponse else a message of the server before it, asks included */
export function eventOf(message: JsonObject, isResponse = false): StreamEvent {
  return { event: isResponse ? 'response' : 'notification', data: messageText(message) };
}

/** `streamOpened`, `ping` and `streamClosed` are of a connection: they have no id, and are kept nowhere. */
export function lifecycle(method: string, params: JsonObject): string {
  return eventText({ event: 'lifecycle', data: JSON.stringify({ jsonrpc: '2.0', method, params }) });
}

/** The present time, as lifecycle events carry it. */
export function timestamp(): JsonObject {
  return { timestamp: new Date().toISOString() };
}

/** In the order of the wire's own description: event, data, id, retry. */
export function eventText({ event, data, retry }: StreamEvent, id?: string): string {
  return sseEvent({ event, data, id, retry });
}

export const FRAMING: Framing = {
  event: eventText,
  alive: () => lifecycle('ping', timestamp()),
  closing: (why) =>
    lifecycle('streamClosed', { reason: why === 'closed' || why === 'leaving' ? 'shutdown' : why }),
};
