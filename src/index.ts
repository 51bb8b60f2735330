/** What users import. */
export { type AwaitHandler, createAwaitHandler } from '../compat/handler.ts';
export { type StepFunction, type StepHandle, shed, step } from './call/context.ts';
export type { CallRecord } from './call/journal.ts';
export type { JsonObject } from './call/json.ts';
export type { Limits } from './call/limits.ts';
export type { Relay } from './call/ports.ts';
export { AwaitError, type AwaitErrorCode } from './error.ts';
export type { FactoryContext, HostFactory, HostProduct, HostServer } from './host/host.ts';
export type { Limiter, Rate, RateLimitOptions } from './http/rate-limit.ts';
export type { Counters } from './observe/counters.ts';
export type { AwaitOptions, Logger, Revision, TaskChoice, TaskRequest, WorkspaceOptions } from './options.ts';
export { memoryRelay } from './relay/memory.ts';
