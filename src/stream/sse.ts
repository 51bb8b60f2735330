/** Server-sent events as text (WHATWG HTML, section 9.2). */

export interface SseEvent {
  readonly event?: string;
  readonly id?: string;
  /** Without it a standard parser drops the event. */
  readonly data?: string;
  /** When a client that lost its connection should come back, in milliseconds. */
  readonly retry?: number;
}

/** Its fields in their order. Data must hold no line ends: JSON has none. */
export function sseEvent(fields: { readonly [Name in keyof SseEvent]: SseEvent[Name] | undefined }): string {
  let text = '';
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) text += `${name}: ${value}\n`;
  return `${text}\n`;
}

export function sseMessage(message: unknown, id?: string): string {
  return sseEvent({ event: 'message', id, data: JSON.stringify(message) });
}

/** A comment, which keeps proxies from closing an idle connection. */
export const SSE_KEEP_ALIVE = ': keep-alive\n\n';
