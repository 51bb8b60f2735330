/**
 * The kinds of damage. Each makes of a good token one that must be refused: as text, by its header, or sealed as
 * it should be but for something else. `undefined` where a kind does not fit the token, or nothing changed.
 */
import { randomBytes } from 'node:crypto';
import type { Binding } from '../../src/call/ports.ts';
import type { KeyPurpose } from '../../src/checkpoint/key-ring.ts';
import type { Sealer } from '../../src/checkpoint/sealed.ts';
import type { Random } from '../fixtures/random.ts';
import { HEADERS } from './headers.ts';
import { type Asking, SECRETS, servicesWith, type Token, UNKNOWN_SECRET } from './material.ts';

export interface Damaged {
  readonly token: unknown;
  /** The binding it is presented with, if that is not its own. */
  readonly binding?: Binding;
  readonly asking?: Asking;
  /** The caller that presents a session's token. */
  readonly caller?: string;
}

type Damage = (good: Token, random: Random, all: readonly Token[]) => Damaged | undefined;

const DAY = 86_400_000;
const SPACES = [' ', '\t', '\n', '\r\n', '\u00a0', '\u2028', '\ufeff'];
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

const text =
  (change: (token: string, random: Random, all: readonly Token[]) => string): Damage =>
  ({ token }, random, all) => ({ token: change(token, random, all) });

/** Changes one of the five parts of a token: header, key, nonce, ciphertext, tag. */
const part = (
  nths: readonly number[],
  change: (part: string, random: Random, all: readonly Token[], nth: number) => string,
) =>
  text((token, random, all) => {
    const nth = random.pick(nths);
    return token
      .split('.')
      .map((part, index) => (index === nth ? change(part, random, all, nth) : part))
      .join('.');
  });

const bytes = (change: (bytes: Buffer, random: Random) => Buffer) => (part: string, random: Random) =>
  change(Buffer.from(part, 'base64url'), random).toString('base64url');

const insert = (what: (random: Random) => string) =>
  text((token, random) => {
    const at = random.pick([0, token.length, random.int(token.length)]);
    return token.slice(0, at) + what(random) + token.slice(at);
  });

const TEXTUAL: Readonly<Record<string, Damage>> = {
  'a bit flipped': part(
    [0, 2, 3, 4],
    bytes((data, random) => {
      const at = random.int(data.length);
      data[at] = (data[at] ?? 0) ^ (1 << random.int(8));
      return data;
    }),
  ),
  'a letter changed': text((token, random) => {
    const at = random.int(token.length);
    return token.slice(0, at) + random.pick([...LETTERS]) + token.slice(at + 1);
  }),
  'cut off': text((token, random) => token.slice(0, random.int(token.length))),
  'cut off at its start': text((token, random) => token.slice(1 + random.int(token.length - 1))),
  'a piece taken out': text((token, random) => {
    const at = random.int(token.length);
    return token.slice(0, at) + token.slice(at + 1 + random.int(20));
  }),
  longer: insert((random) => randomBytes(1 + random.int(40)).toString('base64url')),
  twice: text((token, random) => token + random.pick(['', '.', ' ', ',']) + token),
  backwards: text((token) => [...token].reverse().join('')),
  'in other case': text((token, random) => (random.int(2) === 0 ? token.toLowerCase() : token.toUpperCase())),
  'parts in another order': text((token, random) => random.shuffled(token.split('.')).join('.')),
  'a part emptied': part([0, 2, 3, 4], () => ''),
  'a part of another token': part(
    [0, 1, 2, 3, 4],
    (_part, random, all, nth) => random.pick(all).token.split('.')[nth] ?? '',
  ),
  'another part of it': text((token, random) => {
    const parts = token.split('.');
    parts[random.int(5)] = random.pick(parts);
    return parts.join('.');
  }),
  'two tokens spliced': text((token, random, all) => {
    const other = random.pick(all).token;
    const at = random.int(Math.min(token.length, other.length));
    return token.slice(0, at) + other.slice(at);
  }),
  'an encrypted key': part([1], (_part, random) => randomBytes(1 + random.int(40)).toString('base64url')),
  'a shorter tag': part(
    [4],
    bytes((data, random) => data.subarray(0, random.int(data.length))),
  ),
  'a nonce of another length': part(
    [2],
    bytes((data, random) =>
      random.int(2) === 0 ? data.subarray(0, random.int(12)) : Buffer.concat([data, data]),
    ),
  ),
  'more dots': insert((random) => '.'.repeat(1 + random.int(3))),
  'fewer dots': text((token, random) => {
    const dots = [...token.matchAll(/\./g)].map(({ index }) => index);
    const at = random.pick(dots);
    return token.slice(0, at) + token.slice(at + 1);
  }),
  'white space': insert((random) => random.pick(SPACES)),
  padding: part([0, 2, 3, 4], (part, random) => part + '='.repeat(1 + random.int(3))),
  'slack bits': part([0, 2, 3, 4], (part) => {
    const slack = [0, 0, 4, 2][part.length % 4] ?? 0;
    const last = LETTERS.indexOf(part.at(-1) ?? '');
    return slack === 0 ? part : part.slice(0, -1) + LETTERS[last ^ 1];
  }),
  'the alphabet of base64': text((token) => token.replaceAll('-', '+').replaceAll('_', '/')),
  'percent signs': text((token, random) => {
    const at = random.int(token.length);
    return `${token.slice(0, at)}%${token.charCodeAt(at).toString(16)}${token.slice(at + 1)}`;
  }),
  unicode: insert((random) =>
    String.fromCodePoint(
      random.pick([0, 0x7f, 0x80, 0x200b, 0x202e, 0x41f, 0xd800, 0xff21, 0x1f4a9]) + random.int(3),
    ),
  ),
  'a full-width letter': text((token, random) => {
    const at = random.int(token.length);
    return token.slice(0, at) + String.fromCodePoint(token.charCodeAt(at) + 0xfee0) + token.slice(at + 1);
  }),
  noise: (_good, random) => ({
    token: randomBytes(random.int(300)).toString(random.pick(['base64url', 'hex', 'latin1'])),
  }),
  'five parts of noise': (_good, random) => ({
    token: [60, 0, 12, 200, 16]
      .map((length) => randomBytes(length && length + random.int(3) - 1).toString('base64url'))
      .join('.'),
  }),
  'as JSON': text((token) => {
    const [header, key, iv, ciphertext, tag] = token.split('.');
    return JSON.stringify({ protected: header, encrypted_key: key, iv, ciphertext, tag });
  }),
  'no string': (good, random) =>
    good.kind === 'session'
      ? undefined
      : {
          token: random.pick<unknown>([
            null,
            0,
            1e9,
            true,
            [],
            [good.token],
            {},
            { token: good.token },
            { length: 5 },
            ['', '', ''],
          ]),
        },
};

const REWRITTEN: Readonly<Record<string, Damage>> = Object.fromEntries(
  Object.entries(HEADERS).map(([name, rewrite]): [string, Damage] => [
    `header: ${name}`,
    text((token, random) => {
      const [header = '', ...rest] = token.split('.');
      const said = Buffer.from(header, 'base64url').toString();
      return [Buffer.from(rewrite(said, random)).toString('base64url'), ...rest].join('.');
    }),
  ]),
);

/** Sealers of other services, by their difference. */
const own = servicesWith({});
const abroad = servicesWith({ audience: 'another service' });
const unknown = servicesWith({ secrets: [UNKNOWN_SECRET] });
const reversed = servicesWith({ secrets: [...SECRETS].reverse() });
for (const services of [own, abroad, unknown, reversed]) services.close();

/** The good token's content, sealed anew. */
const sealed = (
  how: (
    body: { readonly [name: string]: unknown },
    expires: number,
    purpose: KeyPurpose,
    random: Random,
  ) => string,
): Damage => {
  return (good, random) => {
    const purpose = good.kind === 'session' ? 'session' : 'state';
    const body =
      good.kind === 'session'
        ? { name: 'x.y', client: { capabilities: {}, info: {}, protocolVersion: '2025-11-25' } }
        : { callId: 'zzzzzzzz.call', at: 0, binding: good.binding };
    return { token: how(body, Date.now() + DAY, purpose, random) };
  };
};
const other = (sealer: Sealer) => sealed((body, expires, purpose) => sealer.seal(purpose, body, expires));
const headerOf = (token: string): string => token.split('.', 1)[0] ?? '';

const SEALED: Readonly<Record<string, Damage>> = {
  'sealed for another service': other(abroad.sealer),
  'sealed with an unknown secret': other(unknown.sealer),
  'sealed with an unknown secret under our name': sealed((body, expires, purpose) => {
    const forged = unknown.sealer.seal(purpose, body, expires).split('.').slice(1);
    return [headerOf(own.sealer.seal(purpose, body, expires)), ...forged].join('.');
  }),
  'sealed with one secret under the name of the other': sealed((body, expires, purpose) => {
    const forged = reversed.sealer.seal(purpose, body, expires).split('.').slice(1);
    return [headerOf(own.sealer.seal(purpose, body, expires)), ...forged].join('.');
  }),
  'sealed for another purpose': sealed((body, expires, purpose, random) => {
    const purposes = (['state', 'session', 'event', 'task'] as const).filter((name) => name !== purpose);
    return random.pick([own, reversed]).sealer.seal(random.pick(purposes), body, expires);
  }),
  'sealed long ago': sealed((body, _expires, purpose, random) =>
    random.pick([own, reversed]).sealer.seal(purpose, body, Date.now() - 1 - random.int(DAY)),
  ),
};

/** A good token, presented with another binding. */
const bound = (change: (binding: Binding, asking: Asking) => [Partial<Binding>, Partial<Asking>]): Damage => {
  return (good) => {
    if (good.kind === 'session') return undefined;
    const [binding, asking] = change(good.binding, good.asking);
    return {
      token: good.token,
      binding: { ...good.binding, ...binding },
      asking: { ...good.asking, ...asking },
    };
  };
};
const callerOf = (caller: string): string => JSON.stringify([null, null, caller]);

const BOUND: Readonly<Record<string, Damage>> = {
  'of another caller': (good) =>
    good.kind === 'session'
      ? { token: good.token, caller: 'mallory' }
      : bound(() => [{ principal: callerOf('mallory') }, { caller: 'mallory' }])(
          good,
          undefined as never,
          [],
        ),
  'of a caller, and comes from nobody': (good) => {
    if (good.kind === 'session' || good.asking.caller === undefined) return undefined;
    const { principal: _principal, ...binding } = good.binding;
    const { caller: _caller, ...asking } = good.asking;
    return { token: good.token, binding, asking };
  },
  'of another method': bound(({ method }) => {
    const changed = method === 'prompts/get' ? 'tools/call' : 'prompts/get';
    return [{ method: changed }, { method: changed }];
  }),
  'of another target': bound(() => [{ target: 'race' }, { name: 'race' }]),
  'of other arguments': bound(() => [{ args: 'other' }, { args: { word: 'ha' } }]),
  'of another revision': (good) =>
    good.kind === 'session'
      ? undefined
      : {
          token: own.sealer.seal(
            'state',
            { callId: 'zzzzzzzz.call', at: 0, binding: { ...good.binding, revision: 'DRAFT-MRTR-2026-02' } },
            Date.now() + DAY,
          ),
        },
};

export const DAMAGES: ReadonlyMap<string, Damage> = new Map(
  Object.entries({ ...TEXTUAL, ...REWRITTEN, ...SEALED, ...BOUND }),
);
