/**
 * The options of `createAwaitHandler` by kind: one row each, which checks a value and makes the flag of `mcp-await serve`,
 * where a plain value of the command line sets the option. `AwaitOptions` has their types and what docs/options.md says.
 */
import type Keyv from 'keyv';
import { isObject } from '../base/values.ts';
import type { AwaitOptions } from './options.ts';

interface PlainFlag {
  readonly name: string;
  /** The name of its value in `--help`. */
  readonly value?: string;
  readonly help: string;
}

type OptionRow =
  /** `byCall`: or a function that chooses one for each call. */
  | {
      readonly kind: 'choice';
      readonly values: readonly string[];
      readonly flag: PlainFlag;
      readonly byCall?: true;
    }
  /** Milliseconds above 0. */
  | { readonly kind: 'time'; readonly flag: PlainFlag }
  /** `sets`: what its flag sets it to, instead of true. */
  | { readonly kind: 'switch'; readonly flag?: PlainFlag; readonly sets?: false }
  | { readonly kind: 'name'; readonly flag: PlainFlag }
  | { readonly kind: 'names'; readonly flag: PlainFlag }
  | { readonly kind: 'function' }
  | { readonly kind: 'object'; readonly is: (value: unknown) => boolean; readonly what: string }
  /** Checked by the code that reads it. */
  | { readonly kind: 'other' };

const FUNCTION = { kind: 'function' } as const;
const OTHER = { kind: 'other' } as const;

export const OPTIONS = {
  store: {
    kind: 'object',
    is: isKeyv,
    what: 'a Keyv, such as new Keyv(new KeyvRedis(url)); an adapter alone goes inside of one',
  },
  state: {
    kind: 'choice',
    values: ['stored', 'sealed'],
    flag: {
      name: 'state',
      value: 'KIND',
      help: 'stored | sealed: in the store, or in the token alone (default stored)',
    },
  },
  secrets: OTHER,
  encrypt: { kind: 'switch', flag: { name: 'encrypt', help: 'encrypt the records in the store' } },
  relay: {
    kind: 'object',
    is: hasFunctions('listen', 'send', 'close'),
    what: 'a relay, such as redisRelay(url) of mcp-await/redis, natsRelay(url) of mcp-await/nats or memoryRelay()',
  },
  ttl: {
    kind: 'time',
    flag: { name: 'ttl', value: 'TIME', help: 'how long a call lives, such as 30m or 90d (default 1h)' },
  },
  instance: {
    kind: 'choice',
    values: ['call', 'session', 'caller', 'process'],
    flag: {
      name: 'instance',
      value: 'KIND',
      help: 'call | session | caller | process: what an instance of the server serves (default by revision)',
    },
  },
  replay: FUNCTION,
  drift: {
    kind: 'choice',
    values: ['ask', 'reuse', 'fail'],
    flag: {
      name: 'drift',
      value: 'HOW',
      help: 'ask | reuse | fail, where a question changed (default ask)',
    },
  },
  onDrop: {
    kind: 'choice',
    values: ['forget', 'unwind'],
    flag: {
      name: 'on-drop',
      value: 'HOW',
      help: 'forget | unwind: what becomes of a frame that is dropped (default forget)',
    },
  },
  principal: FUNCTION,
  limits: OTHER,
  rateLimit: OTHER,
  allowedOrigins: {
    kind: 'names',
    flag: { name: 'allow-origin', value: 'URL', help: 'an origin that browsers may come from' },
  },
  allowedHosts: {
    kind: 'names',
    flag: {
      name: 'allow-host',
      value: 'NAME',
      help: 'a name of this host that is served besides localhost',
    },
  },
  revisions: OTHER,
  tasks: {
    kind: 'choice',
    values: ['never', 'now', 'after-asks', 'optional'],
    byCall: true,
    flag: {
      name: 'tasks',
      value: 'WHEN',
      help: 'never | now | after-asks | optional: which calls become tasks (default never, unless the server declares tasks)',
    },
  },
  paths: OTHER,
  audience: {
    kind: 'name',
    flag: {
      name: 'audience',
      value: 'NAME',
      help: 'names this service: others with the same secret or store refuse its tokens and records',
    },
  },
  steps: {
    kind: 'switch',
    flag: { name: 'no-steps', help: 'no async context: only steps that name their call are journaled' },
    sets: false,
  },
  warnUnjournaled: { kind: 'switch' },
  logger: {
    kind: 'object',
    is: hasFunctions('debug', 'info', 'warn', 'error'),
    what: 'an object with the functions debug, info, warn and error, such as console',
  },
  audit: FUNCTION,
  ask: OTHER,
} as const satisfies { readonly [Name in keyof Required<AwaitOptions>]: OptionRow };

type OptionTable = typeof OPTIONS;

/** An option that a plain value of the command line sets. */
export type PlainOption = {
  [Name in keyof OptionTable]: OptionTable[Name] extends { readonly flag: PlainFlag } ? Name : never;
}[keyof OptionTable];

/** @returns what a value must be instead; undefined for a valid one */
export function wrongIn(row: OptionRow, value: unknown): string | undefined {
  if (value === undefined) return undefined;
  switch (row.kind) {
    case 'choice':
      if (row.values.some((one) => one === value) || (row.byCall && typeof value === 'function'))
        return undefined;
      return `must be one of ${row.values.map((one) => `'${one}'`).join(', ')}${row.byCall ? ', or a function' : ''}, not ${JSON.stringify(value)}`;
    case 'time':
      if (typeof value === 'number' && Number.isFinite(value) && value > 0) return undefined;
      return `must be a positive number of milliseconds, not ${String(value)}`;
    case 'switch':
      return typeof value === 'boolean' ? undefined : 'must be true or false';
    case 'name':
      return typeof value === 'string' && value !== '' ? undefined : 'must be a string that is not empty';
    case 'names':
      if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return undefined;
      return `must be an array of strings, not ${JSON.stringify(value)}`;
    case 'function':
      return typeof value === 'function' ? undefined : 'must be a function';
    case 'object':
      return row.is(value) ? undefined : `must be ${row.what}`;
    case 'other':
      return undefined;
  }
}

export function isKeyv(value: unknown): value is Keyv {
  return (
    isObject(value) && '_store' in value && typeof value.get === 'function' && typeof value.set === 'function'
  );
}

function hasFunctions(...names: readonly string[]): (value: unknown) => boolean {
  return (value) => isObject(value) && names.every((name) => typeof value[name] === 'function');
}
