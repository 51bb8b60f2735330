/** What may be written into a token's protected header (RFC 7516, section 4) by who wants it opened differently. */
import type { Random } from '../fixtures/random.ts';

type Rewrite = (header: string, random: Random) => string;

const members =
  (change: (random: Random) => object): Rewrite =>
  (header, random) =>
    JSON.stringify({ ...(JSON.parse(header) as object), ...change(random) });

export const HEADERS: Readonly<Record<string, Rewrite>> = {
  'alg none': members((random) => ({ alg: random.pick(['none', 'None', 'NONE', '']) })),
  'another alg': members((random) => ({
    alg: random.pick([
      'A256GCMKW',
      'A256KW',
      'RSA-OAEP',
      'ECDH-ES',
      'HS256',
      'DIR',
      'dir ',
      1,
      null,
      ['dir'],
    ]),
  })),
  'a password': members(() => ({ alg: 'PBES2-HS512+A256KW', p2s: 'c2FsdHNhbHRzYWx0', p2c: 1_000_000_000 })),
  'another enc': members((random) => ({
    enc: random.pick(['A128GCM', 'A192GCM', 'A256CBC-HS512', 'A128CBC-HS256', 'none', '', 256, null]),
  })),
  'another kid': members((random) => ({
    kid: random.pick([
      '',
      'AAAAAAAA',
      'constructor',
      '__proto__',
      '../../etc/passwd',
      "' OR 1=1 --",
      0,
      null,
      ['a'],
      {},
    ]),
  })),
  'no kid': members(() => ({ kid: undefined })),
  'no alg': members(() => ({ alg: undefined })),
  'no enc': members(() => ({ enc: undefined })),
  crit: members((random) => ({
    crit: random.pick([['exp'], ['kid'], ['zip'], [], ['b64'], 'kid', null]),
    exp: 9e12,
    b64: false,
  })),
  zip: members((random) => ({ zip: random.pick(['DEF', 'GZIP', '', null]) })),
  'extra members': members((random) =>
    random.pick<object>([
      { typ: 'JWT' },
      { cty: 'JWE' },
      { jwk: { kty: 'oct', k: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' } },
      { jku: 'http://127.0.0.1:1/keys' },
      { x5u: 'http://127.0.0.1:1/cert' },
      { epk: { kty: 'EC', crv: 'P-256', x: 'AA', y: 'AA' }, apu: 'AA' },
      { exp: 0, nbf: 9e12 },
      { purpose: 'state' },
      { toJSON: 1 },
    ]),
  ),
  'a member twice': (header) => header.replace('{', '{"alg":"none",'),
  prototype: (header) => header.replace('{', '{"__proto__":{"kid":"x"},'),
  'members in another order': (header) =>
    JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(header) as object).reverse())),
  'white space in it': (header) => header.replaceAll(',', ', '),
  'a byte order mark': (header) => `\ufeff${header}`,
  'no object': (_header, random) =>
    random.pick(['[]', 'null', '1', '"dir"', '', '{', '{}', '[{"alg":"dir"}]']),
  deep: () => `${'['.repeat(5_000)}${']'.repeat(5_000)}`,
};
