/** The options of `createAwaitHandler`, and their defaults. */
import type { PageOptions } from '../ask/options.ts';
import type { JsonObject } from '../base/values.ts';
import type { CallRecord } from '../call/journal/entries.ts';
import type { LimitOptions } from '../call/limits.ts';
import type { Relay } from '../call/ports.ts';
import type { AskSecrets } from '../checkpoint/secret-source.ts';
import type { PathOptions } from '../doors/http/paths.ts';
import type { Principal } from '../doors/http/principal.ts';
import type { RateLimitOptions } from '../doors/http/rate-limit.ts';
import type { Audit } from '../observe/audit.ts';
import type { Logger } from '../observe/logger.ts';
import type { RevisionEntry } from './revision-options.ts';

/**
 * A `Keyv` of version 5 or 6, by its shape: its ESM and its CommonJS declarations are two classes to the compiler,
 * and either must do.
 */
export interface StoreLike {
  readonly store: unknown;
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttl?: number): Promise<boolean>;
  delete(key: string): Promise<boolean>;
}

/** A request that may become a task. */
export interface TaskRequest {
  readonly method: string;
  /** As the server gets them. */
  readonly params: JsonObject;
  readonly revision: string;
  readonly principal?: string;
}

/**
 * Never a task; one at once; one from its first step on, with the asks before that as rounds; or one if its client or
 * tool wants that, or if it runs for longer than `limits.taskAfter`.
 */
export type TaskChoice = 'never' | 'now' | 'after-asks' | 'optional';

/**
 * The options of `createAwaitHandler`. Every one may be left out.
 *
 * @typeParam Name the names of the revisions
 */
export interface AwaitOptions<Name extends string = string> {
  /**
   * Where calls are kept, shared by all processes: `await openStore(url)` of `mcp-await/store`, or a Keyv of your own.
   * @remarks Set it for more than one process, and for calls that outlive theirs ([stores](stores.md)).
   * @defaultValue this process's memory
   */
  readonly store?: StoreLike;
  /**
   * `'stored'`: tokens name a checkpoint in the store; `'sealed'`: they carry it.
   * @remarks Set it to serve calls without a store, or to keep answers out of it.
   * @defaultValue `'stored'`
   */
  readonly state?: 'stored' | 'sealed';
  /**
   * The first seals tokens, all open them; at least 32 bytes each. Each text may hold several, with commas between them.
   * A function is asked before the first request, every five minutes, and when a token names a secret that is not
   * known; while it fails, those from before count.
   * @remarks Needed with a shared store, a relay and `'sealed'`; several at once to rotate them.
   * @defaultValue random, with a warning; none with a shared store
   */
  readonly secrets?: readonly (string | undefined)[] | AskSecrets;
  /**
   * Whether records in the store are encrypted, with keys derived from `secrets`.
   * @remarks Set it where those who can read the store must not read answers.
   * @defaultValue `false`
   */
  readonly encrypt?: boolean;
  /**
   * How processes reach one another, so that a call continues where its frame is parked: `redisRelay(url)`,
   * `natsRelay(url)`, `memoryRelay()`. Without one it is replayed.
   * @remarks Set it for several processes whose tools are slow, or not safe, to run again ([processes](processes.md)).
   * @defaultValue none
   */
  readonly relay?: Relay;
  /**
   * Lifetime of a call, in milliseconds; months are fine.
   * @remarks Set it to longer than your users may take to answer.
   * @defaultValue one hour
   */
  readonly ttl?: number;
  /**
   * Which requests share one server instance; its memory lives as long. `'caller'`: one for each known caller in a
   * process, kept while it is used; `'process'`: one for all callers of a process. With these two, clients that differ
   * in revision, capabilities or name still get separate instances.
   * @remarks Set it for servers that keep state between calls, or are slow to start ([instances](instances.md)).
   * @defaultValue a session where there are sessions, else a call
   */
  readonly instance?: 'call' | 'session' | 'caller' | 'process';
  /**
   * Whether a call whose frame is not in this process may be run again from its start.
   * @remarks Return `'never'` for tools with effects outside of a step: they end with an error instead.
   * @defaultValue `() => 'allow'`; for `stdioHost` and `remoteHost`, their own rule
   */
  readonly replay?: (call: CallRecord) => 'allow' | 'never';
  /**
   * What to do if only a question's text changed on replay: ask once more, `'reuse'` the answer, or `'fail'`.
   * @remarks Set it to `'reuse'` where texts vary (a time, a price) and the answer does not depend on that.
   * @defaultValue `'ask'`
   */
  readonly drift?: 'ask' | 'reuse' | 'fail';
  /**
   * What happens to a parked frame that is dropped. `'unwind'`: it is cut off and then rejected, so that its `finally`
   * runs.
   * @remarks Set it for tools that hold a lock or a connection while they ask.
   * @defaultValue `'forget'`
   */
  readonly onDrop?: 'forget' | 'unwind';
  /**
   * The caller's stable name, which calls are bound to. By default from `authInfo.extra` or the claims of a JWT; for an
   * opaque token its keyed digest.
   * @remarks Set it where `authInfo` names your users in another way ([callers](callers.md)).
   * @defaultValue issuer, subject and client
   */
  readonly principal?: Principal;
  /**
   * Bounds of asks, bytes, frames, sessions, tasks and times: [limits](#limits).
   * @remarks `{ frames: 100 }` changes one and keeps the others.
   * @defaultValue see there
   */
  readonly limits?: LimitOptions;
  /**
   * How many calls, continuations and bad tokens a caller may send in a time: `{ calls, resumes, badTokens, caller }`;
   * more get 429 with `Retry-After`. `false`: no limits.
   * @remarks Set it to what your tools can take; for anonymous callers too, with `caller`.
   * @defaultValue generous, for known callers
   */
  readonly rateLimit?: RateLimitOptions | false;
  /**
   * Origins that browsers may come from, besides this machine's: an origin, a host name, or `*`.
   * @remarks Set it for clients that run in a browser.
   * @defaultValue none
   */
  readonly allowedOrigins?: readonly string[];
  /**
   * Names of this host that are served besides this machine's own (`app.example`); `*` serves every one. Without it a
   * connection over loopback is checked for this machine's own names, and elsewhere `Host` is unchecked.
   * @remarks Set it behind a proxy on the same machine, to the proxy's names.
   * @defaultValue this machine's, on loopback
   */
  readonly allowedHosts?: readonly string[];
  /**
   * Revisions that are served; `'*'`: all. One may have options of its own: `{ name: 'workspace-sse', capabilities: {
   * elicitation: {} } }`, what clients can that sent no `initialize`; `{ name: 'DRAFT-SEP-1858', literal: true }`, two
   * events without a `data` line, as the draft prints them; most parsers drop them.
   * @remarks Set it to turn off the drafts, or the revisions with sessions ([revisions](revisions.md)); and to
   * `['*', { name: 'workspace-sse', … }]` so that tools may ask these clients.
   * @defaultValue `['*']`
   */
  readonly revisions?: readonly RevisionEntry<Name>[];
  /**
   * Which calls become tasks, where their client can take one: `'never'`, `'now'`, `'after-asks'`, or `'optional'`, those
   * that their client, or their tool, wants to be one, and those that run for longer than `limits.taskAfter`. A function
   * chooses for each call.
   * @remarks Set it to `'optional'` for clients that have tasks, and to `'now'` for calls that take minutes. It needs a
   * store ([tasks](tasks.md)).
   * @defaultValue `'never'`; `'optional'` for a server that declares tasks
   */
  readonly tasks?: TaskChoice | ((call: TaskRequest) => TaskChoice);
  /**
   * Where the wires with paths of their own are served: `{ sse, messages, workspace }`.
   * @remarks Set it where your application has these paths; `false` turns a wire off.
   * @defaultValue `/sse`, `/messages`, `/mcp/:workspace`
   */
  readonly paths?: PathOptions;
  /**
   * Names this service in its tokens; services that share a secret or a store refuse one another's.
   * @remarks Set it where several services share a secret or a store.
   * @defaultValue `'mcp-await'`
   */
  readonly audience?: string;
  /**
   * `false`: calls get no async context. A step is then recorded only where it names its call
   * (`step(name, fn, { call: extra })`).
   * @remarks Turn it off where the cost of an async context matters ([sizing](operations.md#sizing)).
   * @defaultValue `true`
   */
  readonly steps?: boolean;
  /**
   * Whether the logger warns about tools that used the network, the file system or a child process outside of a step
   * before they asked.
   * @remarks Turn it off where these effects may be repeated ([steps](steps.md)).
   * @defaultValue unless `NODE_ENV` is `production`
   */
  readonly warnUnjournaled?: boolean;
  /**
   * An object with `debug`, `info`, `warn` and `error`, each called with a message and a detail.
   * @remarks Set it to your own logger, such as `console`.
   * @defaultValue warnings and errors, to stderr
   */
  readonly logger?: Logger;
  /**
   * Receives each act on a call with its caller, without content. It must not throw.
   * @remarks Set it to keep an audit log ([retention](../SECURITY.md#retention)).
   * @defaultValue none
   */
  readonly audit?: Audit;
  /**
   * A page of the service's own on which a person answers whose client cannot be asked: `{ page, authorize, person, on }`.
   * @remarks Set it where your users' hosts have no elicitation ([asking](asking.md)).
   * @defaultValue none: such a client's calls get an error at their first question
   */
  readonly ask?: PageOptions;
}
