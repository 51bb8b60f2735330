/** What clients import: `mcp-await/client`. */
export { type AwaitClientOptions, AwaitClientTransport, type ClientRevision } from '../../compat/client.ts';
export { EndpointError } from './endpoint.ts';
export type { Reconnection } from './reconnection.ts';
