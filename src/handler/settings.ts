/** The settings of a handler, made of its options, and the errors of invalid ones. */
import { randomBytes } from 'node:crypto';
import process from 'node:process';
import type Keyv from 'keyv';
import { checkAsk } from '../ask/options.ts';
import type { AskSettings } from '../ask/page-asks.ts';
import { badOption, isObject, type JsonObject, objectOf, optionError } from '../base/values.ts';
import type { CallRecord } from '../call/journal/entries.ts';
import { type Limits, limitsOf } from '../call/limits.ts';
import type { Relay } from '../call/ports.ts';
import { primitiveOf } from '../checkpoint/insert.ts';
import type { AskSecrets } from '../checkpoint/secret-source.ts';
import { checkedSecrets } from '../checkpoint/secrets.ts';
import { type PathOptions, Paths } from '../doors/http/paths.ts';
import type { Principal } from '../doors/http/principal.ts';
import type { RateLimitOptions } from '../doors/http/rate-limit.ts';
import type { Audit } from '../observe/audit.ts';
import { consoleLogger, type Logger } from '../observe/logger.ts';
import { guardedLogger } from '../observe/redact.ts';
import { isKeyv, OPTIONS, wrongIn } from './option-table.ts';
import type { AwaitOptions, TaskChoice, TaskRequest } from './options.ts';
import { type KnownRevisions, revisionsOf } from './revision-options.ts';

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
  readonly principal: Principal | undefined;
  readonly limits: Limits;
  readonly rateLimit: RateLimitOptions | false;
  readonly allowedOrigins: readonly string[];
  readonly allowedHosts: readonly string[] | undefined;
  readonly revisions: ReadonlySet<string>;
  /** `never`: no call; undefined: `optional`, if the server declares tasks. */
  readonly tasks: 'never' | ((call: TaskRequest) => TaskChoice) | undefined;
  /** Whether SEP-1858 writes events without data. */
  readonly literal: boolean;
  readonly paths: Paths;
  /** Of clients of `workspace-sse` that sent no `initialize`. */
  readonly workspaceCapabilities: JsonObject;
  readonly audience: string;
  readonly steps: boolean;
  readonly warnUnjournaled: boolean;
  readonly logger: Logger;
  readonly audit: Audit | undefined;
  readonly ask: AskSettings | undefined;
}

/**
 * @param all the revisions there are
 * @throws AwaitError `bad-option`; the message says what to write instead
 */
export function settle(options: AwaitOptions, all: KnownRevisions): Settings {
  const known: Readonly<Record<string, (typeof OPTIONS)[keyof typeof OPTIONS]>> = OPTIONS;
  for (const [name, value] of Object.entries(options)) {
    const row = Object.hasOwn(known, name) ? known[name] : undefined;
    if (row === undefined) {
      throw badOption(name, `is no option; there are ${Object.keys(OPTIONS).join(', ')}`);
    }
    const wrong = wrongIn(row, value);
    if (wrong !== undefined) throw badOption(name, wrong);
  }
  if (options.encrypt && options.secrets === undefined) {
    throw badOption('encrypt', 'needs secrets: what is encrypted with a random one cannot be read again');
  }
  const { store, state = 'stored' } = options;
  if (options.tasks !== undefined && options.tasks !== 'never' && store === undefined && state === 'sealed') {
    throw badOption(
      'tasks',
      "needs a store: with state: 'sealed' alone nobody keeps a task. Add store: new Keyv(…)",
    );
  }
  const revisions = revisionsOf(options.revisions, all, state === 'stored' || store !== undefined);
  const hasStore = options.store !== undefined || options.state !== 'sealed';
  const has = { secrets: options.secrets !== undefined, store: hasStore };
  return {
    store: isKeyv(store) ? store : state === 'stored' ? 'memory' : undefined,
    state,
    secrets: secretsOf(options),
    encrypt: options.encrypt ?? false,
    relay: options.relay,
    ttl: options.ttl ?? 3_600_000,
    instance: options.instance,
    replay: options.replay,
    drift: options.drift ?? 'ask',
    onDrop: options.onDrop ?? 'forget',
    principal: options.principal,
    limits: limitsOf(options),
    rateLimit: rateLimitOf(options.rateLimit),
    allowedOrigins: options.allowedOrigins ?? [],
    allowedHosts: options.allowedHosts,
    revisions: revisions.names,
    literal: revisions.literal,
    workspaceCapabilities: revisions.capabilities,
    tasks: tasksOf(options.tasks),
    paths: pathsOf(options.paths),
    audience: options.audience ?? 'mcp-await',
    steps: options.steps ?? true,
    warnUnjournaled: options.warnUnjournaled ?? process.env.NODE_ENV !== 'production',
    logger: guardedLogger(options.logger ?? consoleLogger),
    audit: options.audit,
    ask: options.ask && { ...options.ask, url: checkAsk(options.ask, has) },
  };
}

const CHOICES: ReadonlySet<unknown> = new Set<unknown>([undefined, ...OPTIONS.tasks.values]);

function tasksOf(tasks: AwaitOptions['tasks']): Settings['tasks'] {
  if (tasks === undefined || tasks === 'never') return tasks;
  if (typeof tasks === 'string') return () => tasks;
  // Wraps the author's function, so that its mistakes are errors that name the option.
  return (call) => {
    const name = String(call.params.name);
    let chosen: unknown;
    try {
      chosen = tasks(call);
    } catch (error) {
      throw optionError(`tasks threw for ${name}: ${String(error)}`, { cause: error });
    }
    if (CHOICES.has(chosen)) return chosen as TaskChoice;
    // Its rejection must not end the process.
    void Promise.resolve(chosen).catch(() => {});
    const got = chosen instanceof Promise ? 'a promise' : JSON.stringify(chosen);
    throw badOption(
      'tasks',
      `returned ${got} for ${name}: return 'never', 'now', 'after-asks' or 'optional', at once`,
    );
  };
}

/** Without secrets tokens could not be read by another process, nor after a restart. */
function secretsOf(options: AwaitOptions): readonly string[] | AskSecrets {
  const { secrets, store, state, relay } = options;
  if (secrets === undefined) {
    const shared = relay !== undefined || (isKeyv(store) && primitiveOf(store) !== 'map');
    if (shared || state === 'sealed') {
      throw badOption(
        'secrets',
        `is needed with ${shared ? 'a relay or a shared store' : "state: 'sealed'"}, or no other process could read this one's tokens. Write secrets: [process.env.MCP_AWAIT_SECRET] (a command reads it by itself), of at least 32 random bytes`,
      );
    }
    (options.logger ?? consoleLogger).warn('without secrets tokens are worth nothing after a restart');
    return [randomBytes(32).toString('base64url')];
  }
  if (typeof secrets === 'function') return secrets;
  return checkedSecrets(secrets);
}

function rateLimitOf(rateLimit: RateLimitOptions | false | undefined): RateLimitOptions | false {
  if (rateLimit === undefined || rateLimit === false) return rateLimit ?? {};
  if (!isObject(rateLimit)) {
    throw badOption('rateLimit', 'must be an object such as { calls: { most: 100, per: 60_000 } }, or false');
  }
  for (const [name, value] of Object.entries(rateLimit)) {
    if (name === 'caller' && (value === undefined || typeof value === 'function')) continue;
    if (name === 'caller') throw badOption('rateLimit.caller', 'must be a function that names the caller');
    if (!['calls', 'resumes', 'badTokens'].includes(name)) {
      throw badOption(`rateLimit.${name}`, 'is no limit; there are calls, resumes, badTokens and caller');
    }
    const { most, per, consume, get } = objectOf(value);
    const isLimiter = typeof consume === 'function' && typeof get === 'function';
    const isWhole = (number: unknown): boolean => Number.isSafeInteger(number) && Number(number) > 0;
    if (value !== undefined && !isLimiter && !(isWhole(most) && isWhole(per))) {
      throw badOption(
        `rateLimit.${name}`,
        'must be { most, per }, whole numbers from 1 on, per in milliseconds, or a limiter of rate-limiter-flexible',
      );
    }
  }
  return rateLimit;
}

function pathsOf(paths: PathOptions | undefined): Paths {
  if (paths !== undefined && !isObject(paths)) {
    throw badOption('paths', "must be an object such as { sse: '/sse', messages: '/messages' }");
  }
  const unknown = Object.keys(paths ?? {}).find((name) => !['sse', 'messages', 'workspace'].includes(name));
  if (unknown !== undefined)
    throw badOption(`paths.${unknown}`, 'is no path; there are sse, messages and workspace');
  return new Paths(paths);
}
