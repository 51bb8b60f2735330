/** What a client hears where its request can get no response: without it, it would wait until its time is up. */
import { EndpointError } from './endpoint.ts';
import { parseMessages, type RequestId, type Rpc } from './message.ts';

/** JSON-RPC leaves this code to servers; the SDKs use it for a connection that closed. */
const BROKEN = -32000;

/** The server's own error, if it sent one with its status. */
export function failureOf(id: RequestId, error: Error): Rpc {
  return { jsonrpc: '2.0', id, error: wireError(error) };
}

function wireError(error: Error): { code: number; message: string; data?: unknown } {
  if (!(error instanceof EndpointError)) return { code: BROKEN, message: error.message };
  try {
    for (const message of parseMessages(error.body)) if ('error' in message) return message.error;
  } catch {
    // A body of another kind is in the message already.
  }
  return { code: BROKEN, message: error.message, data: { status: error.code } };
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
