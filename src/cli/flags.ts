/**
 * The options of `mcp-await serve` and `mcp-await proxy`: one row each, from which the arguments are read and `--help`
 * is written. A row sets one option of `createAwaitHandler`, one of the server that it is mounted in, or one of the
 * server behind the proxy.
 */
import { NAMES, type Revision } from '../../compat/revisions.ts';
import { hasCode, optionError, sleep, systemClock } from '../base/values.ts';
import { LIMITS } from '../call/limits.ts';
import { openStore } from '../checkpoint/open-store.ts';
import { secretsIn } from '../checkpoint/secrets.ts';
import type { PathOptions } from '../doors/http/paths.ts';
import type { Rate, RateLimitOptions } from '../doors/http/rate-limit.ts';
import type { AwaitOptions } from '../handler/handler.ts';
import { OPTIONS, type PlainOption } from '../handler/option-table.ts';
import type { RevisionEntry } from '../handler/revision-options.ts';
import { UPSTREAMS } from '../proxy/era.ts';
import type { PeerHostOptions } from '../proxy/host.ts';
import { openRelay } from '../relay/open-relay.ts';
import { levelLogger } from './logger.ts';
import { amount, choice, duration, named, readText, whole } from './values.ts';

/** Between two attempts to reach a store that is waited for, in milliseconds. */
const WAIT = 2_000;

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
  /** How long a whole request may take, its body included, in milliseconds. */
  bodyTime: number;
  /** How long a connection is kept open between two requests, in milliseconds. */
  idleTime: number;
  /** How long the process goes on listening after its first signal, in milliseconds, while `/readyz` says no. */
  linger: number;
  /** Whether a store or a relay that cannot be reached at start is waited for. */
  waitForStore: boolean;
}

export interface Draft {
  readonly options: { -readonly [Name in keyof AwaitOptions]: AwaitOptions[Name] };
  readonly serving: Serving;
  readonly peer: PeerDraft;
  readonly ask: AskDraft;
}

/** The page on which a person answers; `askingOf` refuses what does not go together. */
interface AskDraft {
  page?: string;
  jwks?: string;
  issuer?: string;
  audience?: string;
  callers?: string;
  header?: string;
  pair?: boolean;
}

/** The server behind the proxy. */
export interface PeerDraft {
  /** Of a remote one. */
  url?: string;
  headers: Record<string, string>;
  /** Whether it gets the token of each caller. */
  forwardAuthorization: boolean;
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
    ask: {},
    peer: { headers: {}, forwardAuthorization: false, options: {} },
    serving: {
      stdio: false,
      port: 3_000,
      host: '127.0.0.1',
      compress: false,
      forwarded: false,
      connections: 10_000,
      bodyTime: 30_000,
      idleTime: 10_000,
      linger: 0,
      waitForStore: false,
    },
  };
}

/** A flag of one value: the last one given counts. */
function one(
  name: string,
  value: string,
  help: string,
  put: (draft: Draft, given: string) => void | Promise<void>,
): Flag {
  return { name, value, help, set: (draft, values) => put(draft, values.at(-1) ?? '') };
}

/** Where the value of a flag goes: to the field of this part that has its name, without the part's own. */
type DraftPart = 'serving' | 'ask' | 'peer' | 'upstream';

/** @param read of what is given, if it is no text */
function into(part: DraftPart, name: string, read: (given: string) => unknown = String) {
  const field = name
    .replace(`${part}-`, '')
    .replace(/-(.)/g, (_dash, letter: string) => letter.toUpperCase());
  return ({ serving, ask, peer }: Draft, given?: unknown): void => {
    const parts = { serving, ask, peer, upstream: peer.options };
    Object.assign(parts[part], { [field]: read(given as string) });
  };
}

/** It may be given several times. */
function many(
  name: string,
  value: string,
  help: string,
  set: (draft: Draft, values: readonly string[]) => void,
): Flag {
  return { name, value, repeats: true, help, set };
}

function text(part: DraftPart, name: string, value: string, help: string): Flag {
  return one(name, value, help, into(part, name));
}

function count(part: DraftPart, name: string, help: string, least: number, most?: number): Flag {
  const read = (given: string): number => whole(name, given, least, most);
  return one(name, 'N', help, into(part, name, read));
}

function on(part: DraftPart, name: string, help: string): Flag {
  return { name, help, set: into(part, name, () => true) };
}

/** In milliseconds. */
function time(part: DraftPart, name: string, help: string): Flag {
  return one(
    name,
    'TIME',
    help,
    into(part, name, (given) => duration(name, given)),
  );
}

function oneOf<const T extends string>(
  name: string,
  value: string,
  help: string,
  all: readonly T[],
  put: (draft: Draft, given: T) => void,
): Flag {
  return one(name, value, help, (draft, given) => put(draft, choice(name, given, all)));
}

/** The flag of an option that a plain value sets: all of it is in the table of the options. */
function plain(option: PlainOption): Flag {
  const row = OPTIONS[option];
  const put = ({ options }: Draft, given: unknown): void => void Object.assign(options, { [option]: given });
  const { name, help } = row.flag;
  switch (row.kind) {
    case 'time':
      return one(name, 'TIME', help, (draft, given) => put(draft, duration(name, given)));
    case 'choice':
      return oneOf<string>(name, row.flag.value, help, row.values, put);
    case 'name':
      return one(name, row.flag.value, help, put);
    case 'names':
      return many(name, row.flag.value, help, put);
    case 'switch':
      return { name, help, set: (draft) => put(draft, !('sets' in row)) };
  }
}

export const FLAGS: Readonly<Record<string, readonly Flag[]>> = {
  'Where it listens': [
    on('serving', 'stdio', 'serves one client on stdin and stdout, of any revision, and no HTTP'),
    count('serving', 'port', 'default 3000; 0 takes a free one', 0, 65_535),
    text('serving', 'host', 'NAME', 'default 127.0.0.1'),
    many(
      'path',
      'WIRE=PATH',
      'sse, messages or workspace: where that wire is served; sse=off and workspace=off turn it off',
      ({ options }, values) => {
        options.paths = Object.fromEntries(
          values.map((given) => {
            const [wire, path] = named('path', given);
            return [wire, path === 'off' ? false : path];
          }),
        ) as PathOptions;
      },
    ),
    count(
      'serving',
      'connections',
      'connections that are open at once; more are closed as they come (default 10000)',
      1,
    ),
    time('serving', 'body-time', 'how long a whole request may take, its body included (default 30s)'),
    time('serving', 'idle-time', 'how long a connection is kept open between two requests (default 10s)'),
    time(
      'serving',
      'linger',
      'how long it goes on listening after a signal, while /readyz says no (default 0s)',
    ),
    {
      name: 'watch',
      help: 'of serve, over HTTP: starts again when a file of the server changes',
      // Where it does, the command is never read with it.
      set: () => {
        throw optionError('--watch goes with serve, over HTTP');
      },
    },
    on('serving', 'compress', 'compress event streams for clients that take gzip'),
  ],
  'Who may talk to it': [
    many(
      'secret',
      'VALUE',
      'seals tokens, and shows in the list of processes: prefer MCP_AWAIT_SECRET, or --secret-file',
      ({ options }, values) => {
        const secrets = secretsIn(values);
        if (secrets.length === 0) return;
        options.secrets = secrets;
        process.stderr.write(
          'mcp-await: others can read --secret in the list of processes; use MCP_AWAIT_SECRET or --secret-file\n',
        );
      },
    ),
    one(
      'secret-file',
      'PATH',
      'a file of secrets, one a line; the first seals, all open',
      ({ options }, given) => {
        options.secrets = secretsIn([readText('secret-file', given)]);
      },
    ),
    plain('audience'),
    many(
      'revision',
      'NAME',
      'a revision that is served, such as 2026-07-28, or all (default); options follow a colon: DRAFT-SEP-1858:literal (two events without data), workspace-sse:elicitation,roots (what its clients can)',
      ({ options }, values) => {
        options.revisions = values.map(entryOf);
      },
    ),
    plain('allowedOrigins'),
    plain('allowedHosts'),
    many(
      'rate',
      'KIND=N/TIME',
      'calls, resumes or badTokens of one client, such as calls=100/1m; --rate off: none',
      ({ options }, values) => {
        options.rateLimit = values.at(-1) === 'off' ? false : ratesIn(values);
      },
    ),
    on('serving', 'forwarded', 'a proxy in front says in X-Forwarded-For where a request comes from'),
  ],
  'Who answers on a page': [
    text(
      'ask',
      'ask-page',
      'URL',
      'where a person answers whose client cannot be asked, such as https://mcp.example.com/ask; served here, under its path',
    ),
    text(
      'ask',
      'ask-jwks',
      'URL',
      'the public keys by which the JWT of a browser, and the bearer token of a caller, is verified',
    ),
    text('ask', 'ask-issuer', 'ISS', 'who must have issued that JWT'),
    text('ask', 'ask-audience', 'AUD', 'for whom that JWT must be'),
    text('ask', 'ask-callers', 'AUD', 'for whom the JWT of an MCP request must be: another audience'),
    text(
      'ask',
      'ask-header',
      'NAME',
      'the header in which a login proxy sends the JWT of a browser (default Authorization)',
    ),
    on(
      'ask',
      'ask-pair',
      'instead of a login, for one person on this machine: a code on the terminal, to type on the page',
    ),
  ],
  'Where calls live': [
    // Before the flags that it is about: they are set in the order of this table.
    on(
      'serving',
      'wait-for-store',
      'waits for a store or relay that cannot be reached at start (default: exits with 2)',
    ),
    one(
      'store',
      'URL',
      'memory: | sqlite://file | redis://… | postgres://… (default memory:); read once at start',
      async ({ options, serving }, given) => {
        options.store = await reached(() => openStore(given), serving);
      },
    ),
    plain('encrypt'),
    plain('state'),
    one(
      'relay',
      'URL',
      'redis://… | nats://…: a call goes on where its frame is (default none)',
      async ({ options, serving }, given) => {
        options.relay = await reached(() => openRelay(given), serving);
      },
    ),
    plain('ttl'),
  ],
  'How calls are run': [
    plain('instance'),
    plain('tasks'),
    oneOf(
      'replay',
      'WHETHER',
      'allow | never: whether a call whose frame is gone is run again (default allow; of proxy, those that say they may)',
      ['allow', 'never'],
      ({ options, peer }, whether) => {
        options.replay = () => whether;
        peer.options.replay = whether;
      },
    ),
    plain('drift'),
    plain('onDrop'),
    plain('steps'),
    oneOf(
      'warn-unjournaled',
      'WHETHER',
      'yes | no: tell of tools that would do something again (default: unless NODE_ENV is production)',
      ['yes', 'no'],
      ({ options }, given) => {
        options.warnUnjournaled = given === 'yes';
      },
    ),
  ],
  'Bounds and logs': [
    many(
      'limit',
      'NAME=VALUE',
      `such as sessions=5000, bodyBytes=1MiB, lease=20s; NAME: ${Object.keys(LIMITS).join(', ')}`,
      ({ options }, values) => {
        options.limits = Object.fromEntries(
          values.map((given) => {
            const [name, value] = named('limit', given);
            return [name, amount(`limit ${name}`, value)];
          }),
        );
      },
    ),
    one('log', 'LEVEL', 'error | warn | info | debug (default warn)', ({ options }, given) => {
      options.logger = levelLogger(given);
    }),
  ],
};

/** Further flags of `mcp-await proxy`. */
export const PROXY_FLAGS: Readonly<Record<string, readonly Flag[]>> = {
  'The server behind the proxy': [
    text(
      'peer',
      'url',
      'URL',
      'a remote server instead of a command: its endpoint, as in https://example.com/mcp',
    ),
    many('header', 'NAME=VALUE', 'with --url: goes with each of its requests', ({ peer }, values) => {
      peer.headers = Object.fromEntries(values.map((given) => named('header', given)));
    }),
    on(
      'peer',
      'forward-authorization',
      'with --url: the server gets the bearer token of each caller, and its 401 and metadata reach the client; for a proxy at its public URL',
    ),
    oneOf(
      'upstream',
      'REVISION',
      'the revision in which the server is spoken to: 2026-07-28, or 2025-11-25 for it and all before (default auto)',
      UPSTREAMS,
      ({ peer }, given) => {
        peer.options.upstream = given;
      },
    ),
    count(
      'upstream',
      'children',
      'processes of one client that run at once, each with its own memory (default 1)',
      1,
    ),
    on('upstream', 'shared', 'callers that are not known share a process, wherever they come from'),
    time('upstream', 'start-timeout', 'how long the server may take to answer initialize (default 30s)'),
    time(
      'upstream',
      'ask-timeout',
      'when the server gives up on what it asks; 0: never (default 60s, as the SDKs)',
    ),
  ],
};

/** @throws AwaitError `store`, unless it is to be waited for */
async function reached<T>(open: () => Promise<T>, { waitForStore }: Serving): Promise<T> {
  for (;;)
    try {
      return await open();
    } catch (error) {
      if (!waitForStore || !hasCode(error, 'store')) throw error;
      process.stderr.write(`mcp-await: ${error.message}; trying again\n`);
      await sleep(systemClock, WAIT);
    }
}

/** `NAME`, or `NAME:OPTION`; `settle` refuses an option that the revision does not have. */
function entryOf(given: string): RevisionEntry<Revision> {
  if (given === 'all') return '*';
  const [text = '', option] = given.split(':', 2);
  const name = choice('revision', text, NAMES);
  if (option === undefined) return name;
  if (option === 'literal') return { name, literal: true };
  return { name, capabilities: Object.fromEntries(option.split(',').map((can) => [can, {}])) };
}

/** Secrets of a command that serves nothing: as given, of a file, or of the environment. */
export function secretsFrom(given: readonly string[], file: string | undefined): string[] | undefined {
  const text = file === undefined ? process.env.MCP_AWAIT_SECRET : readText('secret-file', file);
  const secrets = secretsIn(given.length > 0 ? given : [text ?? '']);
  return secrets.length > 0 ? secrets : undefined;
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
      throw optionError(`--rate ${given} must be a number in a time, such as calls=100/1m`);
    }
    rates[choice('rate', kind, ['calls', 'resumes', 'badTokens'])] = {
      most: whole(`rate ${kind}`, most, 1),
      per: duration(`rate ${kind}`, per),
    };
  }
  return { ...rates, caller: ({ principal, address }) => principal ?? address };
}
