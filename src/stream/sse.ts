/** Server-sent events as text (WHATWG HTML, section 9.2). */

export interface SseEvent {
  readonly event?: string;
  readonly id?: string;
  /** Without it a standard parser drops the event. */
  readonly data?: string;
  /** When a client that lost its connection should come back, in milliseconds. */
  readonly retry?: number;
}

/** Data must hold no line ends: JSON has none. */
export function sseEvent({ event, id, data, retry }: SseEvent): string {
  let text = '';
  if (event !== undefined) text += `event: ${event}\n`;
  if (id !== undefined) text += `id: ${id}\n`;
  if (retry !== undefined) text += `retry: ${retry}\n`;
  if (data !== undefined) text += `data: ${data}\n`;
  return `${text}\n`;
}

export function sseMessage(message: unknown, id?: string): string {
  return sseEvent({ event: 'message', data: JSON.stringify(message), ...(id !== undefined && { id }) });
}

/** A comment, which keeps proxies from closing an idle connection. */
export const SSE_KEEP_ALIVE = ': keep-alive\n\n';

/** A comment that says why a stream ends, for people who read the wire. */
export function sseClosing(reason: string): string {
  return `: closing, ${reason}\n\n`;
}

/** When a client whose connection ends should reconnect, in milliseconds; sent before the first event. */
export function sseRetry(retry: number): string {
  return `retry: ${retry}\n\n`;
}
