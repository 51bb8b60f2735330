/** The exports of `mcp-await`. */
export { type AwaitHandler, type AwaitOptions, createAwaitHandler, type Health } from '../compat/handler.ts';
export type { Revision } from '../compat/revisions.ts';
export { AwaitError, type AwaitErrorCode } from './base/error.ts';
export type { JsonObject } from './base/json.ts';
export {
  type CurrentCall,
  currentCall,
  type StepFunction,
  type StepHandle,
  type StepOptions,
  shed,
  step,
} from './call/frame/context.ts';
export type { CallRecord } from './call/journal/entries.ts';
export type { Limits } from './call/limits.ts';
export type { Relay } from './call/ports.ts';
export type { FactoryContext, HostFactory, HostProduct, HostServer } from './host/host.ts';
export type { PeerHost, PeerHostOptions } from './host/peer/host.ts';
export { type RemoteHostOptions, remoteHost } from './host/peer/remote-host.ts';
export { type StdioHostOptions, stdioHost } from './host/peer/stdio-host.ts';
export type { ServerOptions } from './host/validator.ts';
export type { Limiter, Rate, RateLimitOptions } from './http/rate-limit.ts';
export type { Counters } from './observe/counters.ts';
export type { Logger, StoreLike, TaskChoice, TaskRequest, WorkspaceOptions } from './options.ts';
export { memoryRelay } from './relay/memory.ts';
