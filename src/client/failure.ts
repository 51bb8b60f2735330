/**
 * The error response that a client gets if its request can have none from the server; without it the client would wait
 * until its own timeout.
 */
import { EndpointError } from './endpoint.ts';
import { parseMessages, type RequestId, type Rpc } from './message.ts';

/** JSON-RPC leaves this code to servers; the SDKs use it for a connection that closed. */
const BROKEN = -32000;

/** The server's own error, if it sent one with its status. */
export function failureOf(id: RequestId, error: Error): Rpc {
  const status = error instanceof EndpointError ? { data: { status: error.code } } : {};
  const broken = { code: BROKEN, message: error.message, ...status };
  return { jsonrpc: '2.0', id, error: serverErrorIn(error) ?? broken };
}

/** The JSON-RPC error in the body of a refusal; none where it is of another kind. */
export function serverErrorIn(thrown: unknown): Extract<Rpc, { error: unknown }>['error'] | undefined {
  if (!(thrown instanceof EndpointError)) return undefined;
  try {
    return parseMessages(thrown.body).find((message) => 'error' in message)?.error;
  } catch {
    return undefined;
  }
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
