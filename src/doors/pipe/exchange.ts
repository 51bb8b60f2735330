/** A pipe's message as Streamable HTTP: its headers, and its exchange. */
import { defined, isObject, type JsonObject, objectOf } from '../../base/values.ts';
import { tooLarge } from '../http/bodies.ts';
import type { DisconnectSignal } from '../http/disconnect-signal.ts';
import type { Inbound } from '../http/exchange.ts';

/** The member of a message of 2026-07-28 that names its revision. */
export const REVISION_META = 'io.modelcontextprotocol/protocolVersion';

/** Who is at the other end. */
export interface PipeSource {
  readonly path: string;
  /** Of the request that opened the pipe; none of stdio. */
  readonly headers: Readonly<Record<string, string>>;
  /** Credentials may be renewed while the pipe is open. */
  authInfo?: JsonObject;
  readonly address?: string;
  readonly onLoopback?: boolean;
}

/** The headers that a message of a pipe would have over HTTP (2026-07-28, SEP-2243; 2025, session and version). */
export function headersOf(
  body: unknown,
  session: string | undefined,
  version: string | undefined,
): Record<string, string> {
  const { method, params } = objectOf(body);
  const own = objectOf(params);
  const envelope = isObject(own._meta) ? own._meta[REVISION_META] : undefined;
  if (typeof envelope === 'string') {
    const name = own.name ?? own.uri ?? own.taskId;
    return {
      'mcp-protocol-version': envelope,
      ...(typeof method === 'string' && { 'mcp-method': method }),
      ...(typeof name === 'string' && { 'mcp-name': name }),
    };
  }
  if (session === undefined) return {};
  return { 'mcp-session-id': session, ...defined({ 'mcp-protocol-version': version }) };
}

export interface PipedMessage {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string | undefined;
  readonly gone: DisconnectSignal;
  /** Whether its client sends it again on another pipe, where this one breaks. */
  readonly repeats: boolean;
}

export function inboundOf(
  source: PipeSource,
  { method, headers, text = '', gone, repeats }: PipedMessage,
): Inbound {
  const all: Record<string, string> = {
    ...source.headers,
    'content-type': 'application/json',
    accept: method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream',
  };
  // Ids and names come from the client's JSON: one that a header cannot hold is base64, as in 2026-07-28.
  for (const [name, value] of Object.entries(headers)) {
    const isPlain = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith('=?base64?');
    all[name] = isPlain ? value : `=?base64?${Buffer.from(value).toString('base64')}?=`;
  }
  let made: Request | undefined;
  let unread = text;
  // Read once, and not kept while a request waits for its reply.
  const read = (most: number): Promise<string> => {
    const all = unread;
    unread = '';
    return Buffer.byteLength(all) > most ? Promise.reject(tooLarge(most)) : Promise.resolve(all);
  };
  return {
    method,
    path: source.path,
    base: '',
    query: () => undefined,
    header: (name) => all[name],
    text: read,
    textBytes: text.length,
    ...defined({ authInfo: source.authInfo, address: source.address, onLoopback: source.onLoopback }),
    ...(repeats && { repeats }),
    piped: true,
    signal: gone,
    request: () => {
      made ??= new Request(`http://localhost${source.path}`, {
        method,
        headers: all,
        signal: gone.asAbortSignal(),
      });
      return made;
    },
  };
}
