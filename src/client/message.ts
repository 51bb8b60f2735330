/** JSON-RPC messages as far as a transport looks into them: the client checks the rest. */
import type { JSONRPCMessage, RequestId } from '@modelcontextprotocol/sdk/types.js';

export type Rpc = JSONRPCMessage;
export type ClientRequest = Extract<Rpc, { id: RequestId; method: string }>;
export type RpcNotification = Exclude<Extract<Rpc, { method: string }>, { id: RequestId }>;
/** A result or an error. */
export type RpcAnswer = Exclude<Rpc, { method: string }>;
/** The error that an answer may be. */
export type AnswerError = Extract<RpcAnswer, { error: unknown }>['error'];
export type { RequestId };

/** A JSON object: its members are `unknown` until checked. */
export type JsonObject = Record<string, unknown>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isRequest(message: Rpc): message is ClientRequest {
  return 'method' in message && 'id' in message && message.id !== undefined;
}

export function isAnswer(message: Rpc): message is RpcAnswer {
  return !('method' in message);
}

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'string' || typeof value === 'number';
}

/**
 * The messages of a body or of an event: one, or a batch.
 * @param read turns a draft's own message forms into JSON-RPC
 */
export function parseMessages(text: string, read: (value: unknown) => unknown = (value) => value): Rpc[] {
  const parsed: unknown = JSON.parse(text);
  return (Array.isArray(parsed) ? parsed : [parsed]).map((member: unknown) => {
    const value = read(member);
    if (isMessage(value)) return value;
    throw new Error(`The server sent what is no JSON-RPC message: ${JSON.stringify(value).slice(0, 200)}`);
  });
}

function isMessage(value: unknown): value is Rpc {
  if (typeof value !== 'object' || value === null || !('jsonrpc' in value) || value.jsonrpc !== '2.0') {
    return false;
  }
  if ('method' in value) return typeof value.method === 'string';
  const outcome = 'result' in value ? value.result : 'error' in value ? value.error : undefined;
  return typeof outcome === 'object' && outcome !== null;
}
