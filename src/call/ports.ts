/**
 * The narrow interfaces that the engine is given, and the types that it exports. It needs neither HTTP, nor Keyv, nor
 * an SDK.
 */
export type { CallStore, OpenJournal } from './journal/store.ts';
export type { Binding } from './run/binding.ts';
export type { Outcome } from './run/outcome.ts';
export { type Relay, RelayListener } from './run/relay.ts';
export type { AbortSignalLike, Instance, InstanceContext, RequestContext } from './run/request-context.ts';
export type { StateTokens, TokenState } from './run/state.ts';
