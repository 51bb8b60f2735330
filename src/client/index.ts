/** What clients import: `mcp-await/client`. */
export { type AwaitClientOptions, AwaitClientTransport, type ClientRevision } from '../../compat/client.ts';
export type { OnState } from '../../compat/mrtr/client.ts';
export { type InputRequests, resuming, type SavedCall } from '../../compat/mrtr/saved-call.ts';
export { EndpointError } from './endpoint.ts';
export type { Reconnection } from './reconnection.ts';
