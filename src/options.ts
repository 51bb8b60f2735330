/** The options of `createAwaitHandler`, their defaults, and the errors of invalid ones. */
import { randomBytes } from 'node:crypto';
import process from 'node:process';
import type Keyv from 'keyv';
import { AwaitError } from './base/error.ts';
import { isObject, type JsonObject } from './base/json.ts';
import type { CallRecord } from './call/journal/entries.ts';
import { DEFAULT_LIMITS, type Limits } from './call/limits.ts';
import type { Relay } from './call/ports.ts';
import { primitiveOf } from './checkpoint/insert.ts';
import type { AskSecrets } from './checkpoint/secret-source.ts';
import { assertSecrets } from './checkpoint/secrets.ts';
import { type PathOptions, Paths } from './http/paths.ts';
import type { Principal } from './http/principal.ts';
import type { RateLimitOptions } from './http/rate-limit.ts';
import type { Audit } from './observe/audit.ts';
import { guardedLogger } from './observe/redact.ts';

/** The option `logger`. Default: warnings and errors to stderr. */
export interface Logger {
  debug(message: string, detail?: JsonObject): void;
  info(message: string, detail?: JsonObject): void;
  warn(message: string, detail?: JsonObject): void;
  error(message: string, detail?: JsonObject): void;
}

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

/** Never a task; one at once; or one from its first step on, with the asks before that as rounds. */
export type TaskChoice = 'never' | 'now' | 'after-asks';

/**
 * The options of `createAwaitHandler`. Every one may be left out.
 *
 * @typeParam Name the names of the revisions
 */
export interface AwaitOptions<Name extends string = string> {
  /**
   * Where calls are kept, shared by all processes: `await openStore(url)` of `mcp-await/store`, or a Keyv
   * of your own. Default: this process's memory.
   */
  readonly store?: StoreLike;
  /** `stored` (default): tokens name a checkpoint in the store. `sealed`: they carry it. */
  readonly state?: 'stored' | 'sealed';
  /**
   * The first seals tokens, all open them; at least 32 bytes each. A function is asked before the first request,
   * every five minutes, and when a token names a secret that is not known; while it fails, those from before count.
   */
  readonly secrets?: readonly (string | undefined)[] | AskSecrets;
  /** Whether records in the store are encrypted, with keys derived from `secrets`. Default false. */
  readonly encrypt?: boolean;
  /**
   * How processes reach one another, so that a call continues where its frame is parked. Default: none; it is replayed.
   */
  readonly relay?: Relay;
  /** Lifetime of a call, in milliseconds. Default one hour. */
  readonly ttl?: number;
  /**
   * Which requests share one server instance; its memory lives as long. Default: a session where there are sessions,
   * else a call. `caller`: one for each known caller in a process, kept while it is used; `process`: one for all
   * callers of a process. With these two, clients that differ in revision, capabilities or name still get separate
   * instances.
   */
  readonly instance?: 'call' | 'session' | 'caller' | 'process';
  /**
   * Whether a call whose frame is not in this process may be run again from its start. Default `allow`; for `stdioHost`
   * and `remoteHost`, their own rule.
   */
  readonly replay?: (call: CallRecord) => 'allow' | 'never';
  /** What to do if only a question's text changed on replay. Default `ask`: once more. */
  readonly drift?: 'ask' | 'reuse' | 'fail';
  /** What happens to a parked frame that is dropped. Default `forget`. */
  readonly onDrop?: 'forget' | 'unwind';
  /** How long an ask waits for a running step before it goes out beside it, in milliseconds. Default 5,000. */
  readonly askDelay?: number;
  /**
   * How long a replay waits for the tool to reach a recorded answer or step, in milliseconds, before it is skipped.
   * Default 300.
   */
  readonly replayGrace?: number;
  /**
   * The caller's stable name. Default: issuer, subject and client, from `authInfo.extra` or the claims of a JWT;
   * for an opaque token its keyed digest (`docs/callers.md`).
   */
  readonly principal?: Principal;
  readonly limits?: Partial<Limits>;
  /**
   * How many calls, continuations and bad tokens a caller may send in a time. Default: generous, for known callers;
   * `false`: no limits.
   */
  readonly rateLimit?: RateLimitOptions | false;
  /** Origins that browsers may come from, besides this machine's. */
  readonly allowedOrigins?: readonly string[];
  /**
   * Names of this host that are served besides this machine's own (`app.example`); `*` serves every one. Default: on
   * a connection over loopback this machine's own alone, so behind a proxy on the same machine the proxy's names are
   * to be given; elsewhere `Host` is unchecked.
   */
  readonly allowedHosts?: readonly string[];
  /** Revisions that are served. Default: all. */
  readonly revisions?: readonly Name[];
  /**
   * SEP-1858: whether `buffer_input` and `input_required` go out without a `data` line, as the draft prints them.
   * Parsers that follow the standard drop such events. Default false: the line is there, and empty.
   */
  readonly literal?: boolean;
  /**
   * Which calls become tasks, where their client can take one. Default: those that their client, or their tool,
   * wants to be one, and those that run for longer than `limits.taskAfter`. It needs a store.
   */
  readonly tasks?: (call: TaskRequest) => TaskChoice;
  /**
   * How late this process's event loop may be, in milliseconds, before a call of a revision with round trips is given
   * up between two steps, for its client to bring to another process. Default: never.
   */
  readonly shedAbove?: number;
  /** Where the wires with paths of their own are served. Default: `/sse`, `/messages` and `/mcp/:workspace`. */
  readonly paths?: PathOptions;
  /** Settings for clients of `workspace-sse`, whose wire does not carry them. */
  readonly workspace?: WorkspaceOptions;
  /** Names this service in its tokens; services that share a secret refuse one another's. */
  readonly audience?: string;
  /**
   * `false`: calls get no async context. A step is then recorded only where it names its call
   * (`step(name, fn, { call: extra })`).
   */
  readonly steps?: boolean;
  /**
   * Whether the logger warns about tools that used the network, the file system or a child process outside of a step
   * before they asked. Default: unless `NODE_ENV` is `production`.
   */
  readonly warnUnjournaled?: boolean;
  readonly logger?: Logger;
  /** Receives each act on a call with its caller, without content: for an audit log. It must not throw. */
  readonly audit?: Audit;
}

/** The option `workspace`. */
export interface WorkspaceOptions {
  /**
   * The capabilities of a client that sent no `initialize`, in MCP's own shape: `{ elicitation: {} }`. Default: none,
   * so a tool that asks gets its SDK's error.
   */
  readonly capabilities?: JsonObject;
}

export interface Settings {
  /** `memory`: this process's own, which no other process reads. */
  readonly store: Keyv | 'memory' | undefined;
  readonly state: 'stored' | 'sealed';
  readonly secrets: readonly string[] | AskSecrets;
  readonly encrypt: boolean;
  readonly relay: Relay | undefined;
  readonly ttl: number;
  readonly instance: AwaitOptions['instance'];
  readonly replay: ((call: CallRecord) => 'allow' | 'never') | undefined;
  readonly drift: 'ask' | 'reuse' | 'fail';
  readonly onDrop: 'forget' | 'unwind';
  readonly askDelay: number;
  readonly replayGrace: number;
  readonly principal: Principal | undefined;
  readonly limits: Limits;
  readonly rateLimit: RateLimitOptions | false;
  readonly allowedOrigins: readonly string[];
  readonly allowedHosts: readonly string[] | undefined;
  readonly revisions: ReadonlySet<string>;
  readonly tasks: ((call: TaskRequest) => TaskChoice) | undefined;
  readonly shedAbove: number | undefined;
  readonly literal: boolean;
  readonly paths: Paths;
  readonly workspace: Required<WorkspaceOptions>;
  readonly audience: string;
  readonly steps: boolean;
  readonly warnUnjournaled: boolean;
  readonly logger: Logger;
  readonly audit: Audit | undefined;
}

const KNOWN: ReadonlySet<string> = new Set<keyof AwaitOptions>([
  'store',
  'state',
  'secrets',
  'encrypt',
  'relay',
  'ttl',
  'instance',
  'replay',
  'drift',
  'onDrop',
  'askDelay',
  'replayGrace',
  'principal',
  'limits',
  'rateLimit',
  'allowedOrigins',
  'allowedHosts',
  'revisions',
  'tasks',
  'shedAbove',
  'literal',
  'paths',
  'workspace',
  'audience',
  'steps',
  'warnUnjournaled',
  'logger',
  'audit',
]);

/** Options of later versions: refused by name until they exist; `false` is accepted. */
const COMING: ReadonlySet<string> = new Set(['onEvent']);

/**
 * @param known the revisions there are
 * @param stored those of them that need a store, if only one of this process
 * @throws AwaitError `bad-option`; the message says what to write instead
 */
export function settle(
  options: AwaitOptions,
  known: readonly string[],
  stored: readonly string[] = [],
): Settings {
  for (const [name, value] of Object.entries(options)) {
    if (COMING.has(name) && (value === undefined || value === false)) continue;
    if (COMING.has(name)) throw wrong(name, 'is not in this version of mcp-await yet; leave it out');
    if (!KNOWN.has(name)) throw wrong(name, `is no option; there are ${[...KNOWN].join(', ')}`);
  }
  oneOf('state', options.state, ['stored', 'sealed']);
  oneOf('instance', options.instance, ['call', 'session', 'caller', 'process']);
  oneOf('drift', options.drift, ['ask', 'reuse', 'fail']);
  oneOf('onDrop', options.onDrop, ['forget', 'unwind']);
  positive('ttl', options.ttl);
  positive('askDelay', options.askDelay);
  positive('replayGrace', options.replayGrace);
  positive('shedAbove', options.shedAbove);
  for (const name of ['replay', 'principal', 'tasks', 'audit'] as const) {
    const value = options[name];
    if (value !== undefined && typeof value !== 'function') throw wrong(name, 'must be a function');
  }
  for (const name of ['steps', 'encrypt', 'literal', 'warnUnjournaled'] as const) {
    const value = options[name];
    if (value !== undefined && typeof value !== 'boolean') throw wrong(name, 'must be true or false');
  }
  if (options.encrypt && options.secrets === undefined) {
    throw wrong('encrypt', 'needs secrets: what is encrypted with a random one cannot be read again');
  }
  for (const name of ['allowedOrigins', 'allowedHosts', 'revisions'] as const) {
    const list: unknown = options[name];
    if (list !== undefined && !(Array.isArray(list) && list.every((item) => typeof item === 'string'))) {
      throw wrong(name, `must be an array of strings, not ${JSON.stringify(list)}`);
    }
  }
  const { audience, logger } = options;
  if (audience !== undefined && (typeof audience !== 'string' || audience === '')) {
    throw wrong('audience', 'must be a string that names this service');
  }
  if (logger !== undefined && !isLogger(logger)) {
    throw wrong(
      'logger',
      'must be an object with the functions debug, info, warn and error, such as console',
    );
  }
  const { store, state = 'stored' } = options;
  if (store !== undefined && !isKeyv(store)) {
    throw wrong(
      'store',
      'must be a Keyv, such as new Keyv(new KeyvRedis(url)); an adapter alone goes inside of one',
    );
  }
  if (options.tasks !== undefined && store === undefined && state === 'sealed') {
    throw wrong(
      'tasks',
      "needs a store: with state: 'sealed' alone nobody keeps a task. Add store: new Keyv(…)",
    );
  }
  if (options.relay !== undefined && !isRelay(options.relay)) {
    throw wrong(
      'relay',
      'must be a relay, such as redisRelay(url) of mcp-await/redis, natsRelay(url) of mcp-await/nats or memoryRelay()',
    );
  }
  return {
    store: store ?? (state === 'stored' ? 'memory' : undefined),
    state,
    secrets: secretsOf(options),
    encrypt: options.encrypt ?? false,
    relay: options.relay,
    ttl: options.ttl ?? 3_600_000,
    instance: options.instance,
    replay: options.replay,
    drift: options.drift ?? 'ask',
    onDrop: options.onDrop ?? 'forget',
    askDelay: options.askDelay ?? 5_000,
    replayGrace: options.replayGrace ?? 300,
    principal: options.principal,
    limits: limitsOf(options.limits),
    rateLimit: rateLimitOf(options.rateLimit),
    allowedOrigins: options.allowedOrigins ?? [],
    allowedHosts: options.allowedHosts,
    revisions: revisionsOf(options.revisions, known, state === 'sealed' && store === undefined ? stored : []),
    tasks: options.tasks && choiceOf(options.tasks),
    shedAbove: options.shedAbove,
    literal: options.literal ?? false,
    paths: pathsOf(options.paths),
    workspace: workspaceOf(options.workspace),
    audience: options.audience ?? 'mcp-await',
    steps: options.steps ?? true,
    warnUnjournaled: options.warnUnjournaled ?? process.env.NODE_ENV !== 'production',
    logger: guardedLogger(options.logger ?? consoleLogger),
    audit: options.audit,
  };
}

const CHOICES: ReadonlySet<unknown> = new Set<TaskChoice | undefined>([
  undefined,
  'never',
  'now',
  'after-asks',
]);

/** Wraps the author's function, so that its mistakes are errors that name the option. */
function choiceOf(tasks: (call: TaskRequest) => TaskChoice): (call: TaskRequest) => TaskChoice {
  return (call) => {
    const name = String(call.params.name);
    let chosen: unknown;
    try {
      chosen = tasks(call);
    } catch (error) {
      throw new AwaitError('bad-option', `tasks threw for ${name}: ${String(error)}`, { cause: error });
    }
    if (CHOICES.has(chosen)) return chosen as TaskChoice;
    // Its rejection must not end the process.
    void Promise.resolve(chosen).catch(() => {});
    const got = chosen instanceof Promise ? 'a promise' : JSON.stringify(chosen);
    throw wrong('tasks', `returned ${got} for ${name}: return 'never', 'now' or 'after-asks', at once`);
  };
}

/** Without secrets tokens could not be read by another process, nor after a restart. */
function secretsOf(options: AwaitOptions): readonly string[] | AskSecrets {
  const { secrets, store, state, relay } = options;
  if (secrets === undefined) {
    const shared = relay !== undefined || (isKeyv(store) && primitiveOf(store) !== 'map');
    if (shared || state === 'sealed') {
      throw wrong(
        'secrets',
        `is needed with ${shared ? 'a relay or a shared store' : "state: 'sealed'"}, or other processes could not read the tokens of this one. Write secrets: [process.env.MCP_AWAIT_SECRET] (on the command line: set MCP_AWAIT_SECRET, or --secret), with at least 32 random bytes in it`,
      );
    }
    (options.logger ?? consoleLogger).warn(
      'no secrets were given: tokens are sealed with a random one, and are worth nothing after a restart',
    );
    return [randomBytes(32).toString('base64url')];
  }
  if (typeof secrets === 'function') return secrets;
  assertSecrets(secrets);
  return secrets;
}

/** Limits of which zero makes sense. */
const MAY_BE_NONE: ReadonlySet<string> = new Set([
  'frames',
  'callerFrames',
  'callerBytes',
  'outcomes',
  'heldNotifications',
  'heldReply',
  'reruns',
]);

function limitsOf(limits: Partial<Limits> | undefined): Limits {
  if (limits !== undefined && !isObject(limits))
    throw wrong('limits', 'must be an object such as { frames: 100 }');
  for (const [name, value] of Object.entries(limits ?? {})) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name)) {
      throw wrong(`limits.${name}`, `is no limit; there are ${Object.keys(DEFAULT_LIMITS).join(', ')}`);
    }
    const least = MAY_BE_NONE.has(name) ? 0 : 1;
    if (typeof value !== 'number' || !Number.isFinite(value) || value < least) {
      throw wrong(`limits.${name}`, `must be a number of at least ${least}, not ${String(value)}`);
    }
  }
  return { ...DEFAULT_LIMITS, ...limits };
}

function rateLimitOf(rateLimit: RateLimitOptions | false | undefined): RateLimitOptions | false {
  if (rateLimit === undefined || rateLimit === false) return rateLimit ?? {};
  if (!isObject(rateLimit)) {
    throw wrong('rateLimit', 'must be an object such as { calls: { most: 100, per: 60_000 } }, or false');
  }
  for (const [name, value] of Object.entries(rateLimit)) {
    if (name === 'caller' && (value === undefined || typeof value === 'function')) continue;
    if (name === 'caller') throw wrong('rateLimit.caller', 'must be a function that names the caller');
    if (!['calls', 'resumes', 'badTokens'].includes(name)) {
      throw wrong(`rateLimit.${name}`, 'is no limit; there are calls, resumes, badTokens and caller');
    }
    if (value !== undefined && !isRate(value)) {
      throw wrong(
        `rateLimit.${name}`,
        'must be { most, per } with whole numbers from 1 on, per in milliseconds, or a limiter of rate-limiter-flexible',
      );
    }
  }
  return rateLimit;
}

function isRate(value: unknown): boolean {
  if (!isObject(value)) return false;
  if (typeof value.consume === 'function' && typeof value.get === 'function') return true;
  return [value.most, value.per].every((number) => Number.isSafeInteger(number) && Number(number) > 0);
}

function revisionsOf(
  revisions: readonly string[] | undefined,
  known: readonly string[],
  unserved: readonly string[],
): ReadonlySet<string> {
  if (revisions === undefined) return new Set(known.filter((revision) => !unserved.includes(revision)));
  const without = revisions.find((revision) => unserved.includes(revision));
  if (without !== undefined) {
    throw wrong(
      'revisions',
      `names ${without}, which needs a store: its clients send no token that could carry a call, so with state: 'sealed' alone another process could not continue it. Add store: new Keyv(…), or leave ${without} out`,
    );
  }
  const unknown = revisions.find((revision) => !known.includes(revision));
  if (revisions.length === 0 || unknown !== undefined) {
    throw wrong(
      'revisions',
      `must name some of ${known.join(', ')}${unknown === undefined ? '' : `, not ${unknown}`}`,
    );
  }
  return new Set(revisions);
}

function pathsOf(paths: PathOptions | undefined): Paths {
  if (paths !== undefined && !isObject(paths)) {
    throw wrong('paths', "must be an object such as { sse: '/sse', messages: '/messages' }");
  }
  const unknown = Object.keys(paths ?? {}).find((name) => !['sse', 'messages', 'workspace'].includes(name));
  if (unknown !== undefined)
    throw wrong(`paths.${unknown}`, 'is no path; there are sse, messages and workspace');
  return new Paths(paths);
}

function workspaceOf(workspace: WorkspaceOptions | undefined): Required<WorkspaceOptions> {
  if (workspace !== undefined && !isObject(workspace)) {
    throw wrong('workspace', 'must be an object such as { capabilities: { elicitation: {} } }');
  }
  const unknown = Object.keys(workspace ?? {}).find((name) => name !== 'capabilities');
  if (unknown !== undefined) throw wrong(`workspace.${unknown}`, 'is no option; there is capabilities');
  const { capabilities = {} } = workspace ?? {};
  if (!isObject(capabilities) || !Object.values(capabilities).every(isObject)) {
    throw wrong('workspace.capabilities', 'must be an object of objects, such as { elicitation: {} }');
  }
  return { capabilities };
}

function isLogger(value: unknown): value is Logger {
  return (
    isObject(value) && ['debug', 'info', 'warn', 'error'].every((level) => typeof value[level] === 'function')
  );
}

function isRelay(value: unknown): value is Relay {
  return isObject(value) && ['listen', 'send', 'close'].every((name) => typeof value[name] === 'function');
}

function isKeyv(value: unknown): value is Keyv {
  return (
    isObject(value) && '_store' in value && typeof value.get === 'function' && typeof value.set === 'function'
  );
}

function oneOf(name: string, value: unknown, values: readonly string[]): void {
  if (value !== undefined && !values.includes(String(value))) {
    throw wrong(
      name,
      `must be one of ${values.map((item) => `'${item}'`).join(', ')}, not ${JSON.stringify(value)}`,
    );
  }
}

function positive(name: string, value: unknown): void {
  if (value !== undefined && (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)) {
    throw wrong(name, `must be a positive number of milliseconds, not ${String(value)}`);
  }
}

function wrong(name: string, what: string): AwaitError {
  return new AwaitError('bad-option', `option ${name} ${what}.`);
}

/** Writes warnings and errors to stderr, one line each, and leaves the rest out. */
export const consoleLogger: Logger = {
  debug: () => {},
  info: () => {},
  warn: (message, detail) => write('warn', message, detail),
  error: (message, detail) => write('error', message, detail),
};

function write(level: string, message: string, detail: JsonObject | undefined): void {
  process.stderr.write(
    `mcp-await ${level}: ${message}${detail === undefined ? '' : ` ${JSON.stringify(detail)}`}\n`,
  );
}
