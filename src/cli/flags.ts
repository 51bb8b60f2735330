/**
 * The options of `mcp-await serve` and `mcp-await proxy`: one row each, from which the arguments are read and `--help`
 * is written. A row sets one option of `createAwaitHandler`, one of the server that it is mounted in, or one of the
 * server behind the proxy.
 */
import { readFileSync } from 'node:fs';
import process from 'node:process';
import type { AwaitOptions } from '../../compat/handler.ts';
import { NAMES } from '../../compat/revisions.ts';
import { AwaitError } from '../base/error.ts';
import type { Limits } from '../call/limits.ts';
import { openStore } from '../checkpoint/open-store.ts';
import type { PeerHostOptions } from '../host/peer/host.ts';
import type { PathOptions } from '../http/paths.ts';
import type { Rate, RateLimitOptions } from '../http/rate-limit.ts';
import { openRelay } from '../relay/open-relay.ts';
import { levelLogger } from './logger.ts';
import { amount, choice, duration, named, whole } from './values.ts';

/** The server that the handler is mounted in. */
export interface Serving {
  /** Whether one client is served on stdin and stdout instead. */
  stdio: boolean;
  port: number;
  host: string;
  /** Whether event streams are compressed. */
  compress: boolean;
  /** Whether the last entry of `X-Forwarded-For`, from a proxy in front, is the client's address. */
  forwarded: boolean;
  /** Open connections at once; more are closed as they come. */
  connections: number;
  /** How long the head of a request may take, and the whole of it with its body; in milliseconds. */
  headTime: number;
  bodyTime: number;
  /** How long a connection is kept open between two requests, in milliseconds. */
  idleTime: number;
}

export interface Draft {
  readonly options: { -readonly [Name in keyof AwaitOptions]: AwaitOptions[Name] };
  readonly serving: Serving;
  readonly peer: PeerDraft;
}

/** The server behind the proxy. */
export interface PeerDraft {
  /** Of a remote one. */
  url?: string;
  headers: Record<string, string>;
  readonly options: { -readonly [Name in keyof PeerHostOptions]: PeerHostOptions[Name] };
}

export interface Flag {
  readonly name: string;
  /** The name of its value in `--help`; a switch has none. */
  readonly value?: string;
  /** Whether it may be given more than once. */
  readonly repeats?: true;
  readonly help: string;
  /**
   * @param values as they were given, in order; of a switch none
   * @throws AwaitError `bad-option`
   */
  set(draft: Draft, values: readonly string[]): void | Promise<void>;
}

export function newDraft(): Draft {
  return {
    options: {},
    peer: { headers: {}, options: {} },
    serving: {
      stdio: false,
      port: 3_000,
      host: '127.0.0.1',
      compress: false,
      forwarded: false,
      connections: 10_000,
      headTime: 10_000,
      bodyTime: 30_000,
      idleTime: 10_000,
    },
  };
}

const last = (values: readonly string[]): string => values.at(-1) ?? '';

export const FLAGS: Readonly<Record<string, readonly Flag[]>> = {
  'Where it listens': [
    {
      name: 'stdio',
      help: 'serves one client on stdin and stdout, of any revision, and no HTTP',
      set: ({ serving }) => {
        serving.stdio = true;
      },
    },
    {
      name: 'port',
      value: 'N',
      help: 'default 3000; 0 takes a free one',
      set: ({ serving }, values) => {
        serving.port = whole('port', last(values), 0, 65_535);
      },
    },
    {
      name: 'host',
      value: 'NAME',
      help: 'default 127.0.0.1',
      set: ({ serving }, values) => {
        serving.host = last(values);
      },
    },
    {
      name: 'path',
      value: 'WIRE=PATH',
      repeats: true,
      help: 'sse, messages or workspace: where that wire is served; sse=off and workspace=off turn it off',
      set: ({ options }, values) => {
        options.paths = Object.fromEntries(
          values.map((given) => {
            const [wire, path] = named('path', given);
            return [wire, path === 'off' ? false : path];
          }),
        ) as PathOptions;
      },
    },
    {
      name: 'connections',
      value: 'N',
      help: 'connections that are open at once; more are closed as they come (default 10000)',
      set: ({ serving }, values) => {
        serving.connections = whole('connections', last(values), 1);
      },
    },
    {
      name: 'head-time',
      value: 'TIME',
      help: 'how long the head of a request may take (default 10s)',
      set: ({ serving }, values) => {
        serving.headTime = duration('head-time', last(values));
      },
    },
    {
      name: 'body-time',
      value: 'TIME',
      help: 'how long a whole request may take, its body included (default 30s)',
      set: ({ serving }, values) => {
        serving.bodyTime = duration('body-time', last(values));
      },
    },
    {
      name: 'idle-time',
      value: 'TIME',
      help: 'how long a connection is kept open between two requests (default 10s)',
      set: ({ serving }, values) => {
        serving.idleTime = duration('idle-time', last(values));
      },
    },
    {
      name: 'compress',
      help: 'compress event streams for clients that take gzip',
      set: ({ serving }) => {
        serving.compress = true;
      },
    },
  ],
  'Who may talk to it': [
    {
      name: 'secret',
      value: 'VALUE',
      repeats: true,
      help: 'seals tokens, and shows in the list of processes: prefer MCP_AWAIT_SECRET, or --secret-file',
      set: ({ options }, values) => {
        const secrets = secretsIn(values);
        if (secrets.length === 0) return;
        options.secrets = secrets;
        process.stderr.write(
          'mcp-await: --secret can be read by everybody on this machine in the list of processes; use MCP_AWAIT_SECRET or --secret-file\n',
        );
      },
    },
    {
      name: 'secret-file',
      value: 'PATH',
      help: 'a file of secrets, one a line; the first seals, all open',
      set: ({ options }, values) => {
        options.secrets = secretsIn([readText('secret-file', last(values))]);
      },
    },
    {
      name: 'audience',
      value: 'NAME',
      help: 'names this service: others with the same secret or store refuse its tokens and records',
      set: ({ options }, values) => {
        options.audience = last(values);
      },
    },
    {
      name: 'revision',
      value: 'NAME',
      repeats: true,
      help: 'a revision that is served, such as 2026-07-28 (default all)',
      set: ({ options }, values) => {
        options.revisions = values.map((value) => choice('revision', value, NAMES));
      },
    },
    {
      name: 'allow-origin',
      value: 'URL',
      repeats: true,
      help: 'an origin that browsers may come from',
      set: ({ options }, values) => {
        options.allowedOrigins = values;
      },
    },
    {
      name: 'allow-host',
      value: 'NAME',
      repeats: true,
      help: 'a name of this host that is served besides localhost, such as that of a proxy in front',
      set: ({ options }, values) => {
        options.allowedHosts = values;
      },
    },
    {
      name: 'rate',
      value: 'KIND=N/TIME',
      repeats: true,
      help: 'calls, resumes or badTokens of one client, such as calls=100/1m; --rate off: none',
      set: ({ options }, values) => {
        options.rateLimit = last(values) === 'off' ? false : ratesIn(values);
      },
    },
    {
      name: 'forwarded',
      help: 'a proxy in front says in X-Forwarded-For where a request comes from',
      set: ({ serving }) => {
        serving.forwarded = true;
      },
    },
  ],
  'Where calls live': [
    {
      name: 'store',
      value: 'URL',
      help: 'memory: | sqlite://file | redis://… | postgres://… (default memory:)',
      set: async ({ options }, values) => {
        options.store = await openStore(last(values));
      },
    },
    {
      name: 'encrypt',
      help: 'encrypt the records in the store',
      set: ({ options }) => {
        options.encrypt = true;
      },
    },
    {
      name: 'state',
      value: 'KIND',
      help: 'stored | sealed: in the store, or in the token alone (default stored)',
      set: ({ options }, values) => {
        options.state = choice('state', last(values), ['stored', 'sealed']);
      },
    },
    {
      name: 'relay',
      value: 'URL',
      help: 'redis://… | nats://…: a call goes on where its frame is (default none)',
      set: async ({ options }, values) => {
        options.relay = await openRelay(last(values));
      },
    },
    {
      name: 'ttl',
      value: 'TIME',
      help: 'how long a call lives, such as 30m or 90d (default 1h)',
      set: ({ options }, values) => {
        options.ttl = duration('ttl', last(values));
      },
    },
  ],
  'How calls are run': [
    {
      name: 'instance',
      value: 'KIND',
      help: 'call | session | caller | process: what an instance of the server serves (default by revision)',
      set: ({ options }, values) => {
        options.instance = choice('instance', last(values), ['call', 'session', 'caller', 'process']);
      },
    },
    {
      name: 'tasks',
      value: 'WHEN',
      help: 'never | now | after-asks: which calls become tasks (default by client and tool)',
      set: ({ options }, values) => {
        const when = choice('tasks', last(values), ['never', 'now', 'after-asks']);
        options.tasks = () => when;
      },
    },
    {
      name: 'replay',
      value: 'WHETHER',
      help: 'allow | never: whether a call whose frame is gone is run again (default allow; of proxy, those that say they may)',
      set: ({ options, peer }, values) => {
        const whether = choice('replay', last(values), ['allow', 'never']);
        options.replay = () => whether;
        peer.options.replay = whether;
      },
    },
    {
      name: 'drift',
      value: 'HOW',
      help: 'ask | reuse | fail, where a question changed (default ask)',
      set: ({ options }, values) => {
        options.drift = choice('drift', last(values), ['ask', 'reuse', 'fail']);
      },
    },
    {
      name: 'on-drop',
      value: 'HOW',
      help: 'forget | unwind: what becomes of a frame that is dropped (default forget)',
      set: ({ options }, values) => {
        options.onDrop = choice('on-drop', last(values), ['forget', 'unwind']);
      },
    },
    {
      name: 'ask-delay',
      value: 'TIME',
      help: 'how long an ask waits for a step that runs beside it (default 5s)',
      set: ({ options }, values) => {
        options.askDelay = duration('ask-delay', last(values));
      },
    },
    {
      name: 'replay-grace',
      value: 'TIME',
      help: 'how long a tool that is run again may take to get where it was (default 300ms)',
      set: ({ options }, values) => {
        options.replayGrace = duration('replay-grace', last(values));
      },
    },
    {
      name: 'shed-above',
      value: 'TIME',
      help: 'how late the event loop may be before calls are given up to others (default never)',
      set: ({ options }, values) => {
        options.shedAbove = duration('shed-above', last(values));
      },
    },
    {
      name: 'no-steps',
      help: 'no async context: step() is not journaled',
      set: ({ options }) => {
        options.steps = false;
      },
    },
    {
      name: 'warn-unjournaled',
      value: 'WHETHER',
      help: 'yes | no: tell of tools that would do something again (default: unless NODE_ENV is production)',
      set: ({ options }, values) => {
        options.warnUnjournaled = choice('warn-unjournaled', last(values), ['yes', 'no']) === 'yes';
      },
    },
  ],
  'What is on the wire': [
    {
      name: 'literal',
      help: 'SEP-1858: two events go out without data, as the draft prints them; most parsers drop them',
      set: ({ options }) => {
        options.literal = true;
      },
    },
    {
      name: 'workspace-can',
      value: 'CAPABILITY',
      repeats: true,
      help: 'what clients of workspace-sse can do that do not say it: elicitation, sampling, roots',
      set: ({ options }, values) => {
        options.workspace = { capabilities: Object.fromEntries(values.map((name) => [name, {}])) };
      },
    },
  ],
  'Bounds and logs': [
    {
      name: 'limit',
      value: 'NAME=VALUE',
      repeats: true,
      help: 'any of limits, such as sessions=5000, bodyBytes=1MiB, lease=20s',
      set: ({ options }, values) => {
        const limits: Partial<Record<string, number>> = {};
        for (const given of values) {
          const [name, value] = named('limit', given);
          limits[name] = amount(`limit ${name}`, value);
        }
        options.limits = limits as Partial<Limits>;
      },
    },
    {
      name: 'log',
      value: 'LEVEL',
      help: 'error | warn | info | debug (default warn)',
      set: ({ options }, values) => {
        options.logger = levelLogger(last(values));
      },
    },
  ],
};

/** Further flags of `mcp-await proxy`. */
export const PROXY_FLAGS: Readonly<Record<string, readonly Flag[]>> = {
  'The server behind the proxy': [
    {
      name: 'url',
      value: 'URL',
      help: 'a remote server of 2025-11-25 or before, instead of a command: its endpoint, as in https://example.com/mcp',
      set: ({ peer }, values) => {
        peer.url = last(values);
      },
    },
    {
      name: 'header',
      value: 'NAME=VALUE',
      repeats: true,
      help: 'with --url: goes with each of its requests',
      set: ({ peer }, values) => {
        peer.headers = Object.fromEntries(values.map((given) => named('header', given)));
      },
    },
    {
      name: 'children',
      value: 'N',
      help: 'processes of one client that run at once; what a process keeps in memory is then spread (default 1)',
      set: ({ peer }, values) => {
        peer.options.children = whole('children', last(values), 1);
      },
    },
    {
      name: 'shared',
      help: 'callers that are not known share a process, wherever they come from',
      set: ({ peer }) => {
        peer.options.shared = true;
      },
    },
    {
      name: 'start-timeout',
      value: 'TIME',
      help: 'how long the server may take to answer initialize (default 30s)',
      set: ({ peer }, values) => {
        peer.options.startTimeout = duration('start-timeout', last(values));
      },
    },
    {
      name: 'ask-timeout',
      value: 'TIME',
      help: 'when the server gives up on what it asks; 0: never (default 60s, as the SDKs)',
      set: ({ peer }, values) => {
        peer.options.askTimeout = duration('ask-timeout', last(values));
      },
    },
  ],
};

/** Both `--secret` and `MCP_AWAIT_SECRET` may hold several, comma-separated: the first seals. */
function secretsIn(given: readonly string[]): string[] {
  return given
    .flatMap((value) => value.split(/[,\n\r]/))
    .map((value) => value.trim())
    .filter((value) => value !== '');
}

/** Secrets of a command that serves nothing: as given, of a file, or of the environment. */
export function secretsFrom(given: readonly string[], file: string | undefined): string[] | undefined {
  const text = file === undefined ? process.env.MCP_AWAIT_SECRET : readText('secret-file', file);
  const secrets = secretsIn(given.length > 0 ? given : [text ?? '']);
  return secrets.length > 0 ? secrets : undefined;
}

/** @throws AwaitError `bad-option` for a file that cannot be read */
function readText(flag: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new AwaitError('bad-option', `--${flag} ${path} cannot be read: ${String(error)}`, error);
  }
}

/** Secrets of the environment, where the command line has none. */
export function withEnvironment({ options }: Draft): void {
  const secrets = secretsIn([process.env.MCP_AWAIT_SECRET ?? '']);
  if (options.secrets === undefined && secrets.length > 0) options.secrets = secrets;
}

/** Callers have no names here, so rates count by address. */
function ratesIn(values: readonly string[]): RateLimitOptions {
  const rates: Record<string, Rate> = {};
  for (const given of values) {
    const [kind, rate] = named('rate', given);
    const [most = '', per] = rate.split('/');
    if (per === undefined) {
      throw new AwaitError('bad-option', `--rate ${given} must be a number in a time, such as calls=100/1m`);
    }
    rates[choice('rate', kind, ['calls', 'resumes', 'badTokens'])] = {
      most: whole(`rate ${kind}`, most, 1),
      per: duration(`rate ${kind}`, per),
    };
  }
  return { ...rates, caller: ({ principal, address }) => principal ?? address };
}
