/** The exports of `mcp-await`. */

export type { Revision } from '../compat/revisions.ts';
export type { AskEvent, PageOptions, Person } from './ask/options.ts';
export type { JsonObject } from './base/values.ts';
export { AwaitError, type AwaitErrorCode } from './base/values.ts';
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
export type { LimitOptions } from './call/limits.ts';
export type { Relay } from './call/ports.ts';
export type { Limiter, Rate, RateLimitOptions } from './doors/http/rate-limit.ts';
export type { AwaitHandler, Health } from './handler/await-handler.ts';
export { type AwaitOptions, createAwaitHandler } from './handler/handler.ts';
export type { StoreLike, TaskChoice, TaskRequest } from './handler/options.ts';
export type { RevisionEntry, RevisionOptions } from './handler/revision-options.ts';
export type { FactoryContext, HostFactory, HostProduct, HostServer } from './host/host.ts';
export type { ServerOptions } from './host/validator.ts';
export type { Counters } from './observe/counters.ts';
export type { Logger } from './observe/logger.ts';
export type { PeerHost, PeerHostOptions } from './proxy/host.ts';
export { type RemoteHostOptions, remoteHost } from './proxy/remote-host.ts';
export { type StdioHostOptions, stdioHost } from './proxy/stdio-host.ts';
export { memoryRelay } from './relay/memory.ts';
