/** The exports of `mcp-await/client`. */

export { EndpointError } from './endpoint.ts';
export type { Reconnection } from './message.ts';
export type { ClientRevision } from './revisions.ts';
export type { OnState } from './round-trips/round-trips.ts';
export { type InputRequests, resuming, type SavedCall } from './round-trips/saved-call.ts';
export { type AwaitClientOptions, AwaitClientTransport } from './transport.ts';
export { AwaitWebSocketTransport, type WebSocketLike, type WebSocketTransportOptions } from './websocket.ts';
