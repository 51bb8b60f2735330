/** Schemas of tools: how many compiled ones are kept, and in how much time a pattern is matched. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv';
import { CfWorkerJsonSchemaValidator } from '@modelcontextprotocol/server/validators/cf-worker';
import fc from 'fast-check';
import { RE2JS } from 're2js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readForm } from '../../src/ask/page/form.ts';
import { withoutPatterns } from '../../src/host/linear.ts';
import {
  CachingValidator,
  PlainValidator,
  shareValidator,
  type Validator,
} from '../../src/host/validator.ts';
import { SHORT } from '../short.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** SDK v1 makes its own; its module is not to be imported by types. */
const classic = (): Validator => {
  const { server } = new McpServer({ name: 'classic', version: '1' });
  return (server as unknown as { _jsonSchemaValidator: Validator })._jsonSchemaValidator;
};

const KINDS: readonly (readonly [string, () => Validator])[] = [
  ['the Ajv of SDK v2', () => new AjvJsonSchemaValidator()],
  ['the Ajv of SDK v1', classic],
  ['an evaluator', () => new PlainValidator(new CfWorkerJsonSchemaValidator())],
];
const DIALECTS = [
  undefined,
  'https://json-schema.org/draft/2020-12/schema',
  'http://json-schema.org/draft-07/schema#',
];
const field = (schema: object) => ({ type: 'object', properties: { field: { type: 'string', ...schema } } });

describe.each(KINDS)('%s', (name, make) => {
  it('looks at each item once where items must be unique', () => {
    const validate = new CachingValidator(make).getValidator({ type: 'array', uniqueItems: true });
    let reads = 0;
    const item = (nth: number): object =>
      Object.defineProperty({}, 'nth', {
        enumerable: true,
        get: () => {
          reads += 1;
          return nth;
        },
      });
    const items = Array.from({ length: 20_000 }, (_, nth) => item(nth));
    expect(validate(items).valid).toBe(true);
    expect(reads).toBeLessThanOrEqual(2 * items.length);
    expect(validate([...items, item(7)]).valid).toBe(false);
  });

  it('checks each text by its own pattern', () => {
    const properties = {
      zip: { type: 'string', pattern: '^[0-9]{5}$' },
      code: { type: 'string', pattern: '^[A-Z]{3}$' },
    };
    const validator = new CachingValidator(make);
    const validate = validator.getValidator({ type: 'object', properties });
    expect(validate({ zip: '12345', code: 'ABC' }).valid).toBe(true);
    expect(validate({ zip: '12345', code: '12345' }).valid).toBe(false);
    // And in a schema that comes later.
    const later = validator.getValidator(field({ pattern: '^[a-z]$' }));
    expect([later({ field: 'a' }).valid, later({ field: '12345' }).valid]).toEqual([true, false]);
  });

  it('runs no expression over a long URL, whatever is in it', () => {
    const validate = new CachingValidator(make).getValidator({ type: 'string', format: 'url' });
    let work = 0;
    const { exec } = RegExp.prototype;
    vi.spyOn(RegExp.prototype, 'exec').mockImplementation(function (this: RegExp, text: string) {
      // The long expressions are those of URLs.
      if (this.source.length > 100) work += text.length;
      return exec.call(this, text);
    });
    const long = 100_000;
    for (const part of [':', '@', 'a:', 'a@', '/@', 'a.', '?@:']) {
      const url = `http://a:${part.repeat(long / part.length)}`;
      validate(url);
      expect(work).toBeLessThanOrEqual(10 * url.length);
      work = 0;
    }
    expect(validate(`http://user:${'x'.repeat(long)}@example.com/${'y'.repeat(long)}`).valid).toBe(true);
  });

  it('never runs a pattern that backtracks', () => {
    const validator = new CachingValidator(make);
    const run: string[] = [];
    const { exec } = RegExp.prototype;
    // Whatever runs an expression comes by here, once it is not the engine's own.
    vi.spyOn(RegExp.prototype, 'exec').mockImplementation(function (this: RegExp, text: string) {
      if (this.source.includes('a+')) run.push(this.source);
      return exec.call(this, text);
    });
    for (const $schema of name.includes('v1') ? [undefined] : DIALECTS) {
      const dialect = $schema === undefined ? {} : { $schema };
      const validate = validator.getValidator({ ...dialect, ...field({ pattern: '^(a+)+$' }) });
      expect(validate({ field: 'aaa' }).valid).toBe(true);
      expect(validate({ field: `${'a'.repeat(40)}!` }).valid).toBe(false);
      const keys = validator.getValidator({
        ...dialect,
        type: 'object',
        patternProperties: { '^(a+)+$': { type: 'number' } },
      });
      expect(keys({ [`${'a'.repeat(40)}!`]: 'text' }).valid).toBe(true);
    }
    expect(run).toEqual([]);
  });

  it('matches no text that takes a pattern longer than a moment', async () => {
    // Each of them in a message of its own.
    const verdict = async (pattern: string, text: string) =>
      new CachingValidator(make).getValidator(field({ pattern }))({ field: text }).valid;
    expect(await verdict('^(?:[a-z]{1,100}-?){1,50}$', 'ab-'.repeat(20))).toBe(true);
    expect(await verdict('(?:a{1,100}){1,9}', 'a'.repeat(100_000))).toBe(false);
    expect(await verdict('^a+$', 'a'.repeat(500_000))).toBe(true);
  });

  it('matches the texts of one value, and the values of one message, for a moment in all', async () => {
    const validator = new CachingValidator(make);
    const pattern = '^(?:[a-z]?){200}';
    const names = Array.from({ length: 20 }, (_, nth) => `f${nth}`);
    const properties = Object.fromEntries(names.map((one) => [one, { type: 'string', pattern }]));
    const validate = validator.getValidator({ type: 'object', properties });
    const longTexts = (texts: readonly string[]) =>
      Object.fromEntries(texts.map((one) => [one, 'b'.repeat(5_000)]));
    expect(validate(longTexts(names)).valid).toBe(false);
    for (const one of names) {
      await null;
      expect(validate(longTexts([one])).valid).toBe(true);
    }
    await null;
    const atOnce = names.map((one) => validate(longTexts([one])).valid);
    expect([atOnce[0], atOnce.at(-1)]).toEqual([true, false]);
  });

  it('compiles a pattern once, whatever schemas it is in', () => {
    const compile = vi.spyOn(RE2JS, 'compile');
    const validator = new CachingValidator(make);
    const pattern = `^once ${name}$`;
    for (const title of ['one', 'two', 'three']) validator.getValidator({ title, ...field({ pattern }) });
    for (const title of ['four', 'five'])
      readForm({ title, ...field({ pattern }) }, new URLSearchParams({ 'field.field': 'x' }));
    expect(compile).toHaveBeenCalledTimes(1);
  });
});

describe('an evaluator', () => {
  const verdicts = (schema: object, values: readonly unknown[]) => {
    const validate = new PlainValidator(new CfWorkerJsonSchemaValidator()).getValidator({ ...schema });
    return values.map((value) => validate(value).valid);
  };

  it('checks patterns and unique items in properties, items and allOf', () => {
    const zip = { type: 'string', pattern: '^\\d{5}$' };
    expect(verdicts(field({ pattern: '^b' }), [{ field: 'bc' }, { field: 'cb' }, {}, 7])).toEqual([
      ...[true, false, true, false],
    ]);
    expect(verdicts({ type: 'array', items: zip }, [['12345'], ['12345', 'x']])).toEqual([true, false]);
    expect(verdicts({ allOf: [zip] }, ['12345', 'x'])).toEqual([true, false]);
    const all = { type: 'object', properties: { all: { type: 'array', uniqueItems: true } } };
    expect(verdicts(all, [{ all: [1, 2] }, { all: [1, 1] }])).toEqual([true, false]);
  });

  it('checks none that a value may do without', () => {
    const either = { anyOf: [{ pattern: '^b' }, { minLength: 1 }] };
    expect(verdicts(either, ['c'])).toEqual([true]);
    expect(verdicts({ $ref: '#/$defs/any', pattern: '^b', $defs: { any: {} } }, ['c'])).toEqual([true]);
    expect(verdicts({ properties: { pattern: { const: 'c' } } }, [{ pattern: 'c' }])).toEqual([true]);
  });
});

describe.each(KINDS.slice(0, 2))('%s says in linear time what it says itself', (_name, make) => {
  it('of URLs', () => {
    const schema = { type: 'string', format: 'url' };
    const [own, linear] = [make().getValidator(schema), new CachingValidator(make).getValidator(schema)];
    const piece = fc.constantFrom(
      ...['http://', 'https://', 'ftp://', 'HTTP://', 'a', 'example', '.', 'com', '@', ':', '/', '?', '#'],
      ...['80', '99999', ' ', '-', '10.0.0.1', '8.8.8.8', 'ü', '%41', '\n'],
    );
    const url = fc.tuple(fc.constantFrom('http://', 'https://', ''), fc.array(piece, { maxLength: 9 }));
    fc.assert(
      fc.property(url, ([scheme, rest]) => {
        const text = scheme + rest.join('');
        expect([text, linear(text).valid]).toEqual([text, own(text).valid]);
      }),
      { numRuns: 5_000 },
    );
  });

  it('of unique items', () => {
    const schema = { type: 'array', uniqueItems: true };
    const [own, linear] = [make().getValidator(schema), new CachingValidator(make).getValidator(schema)];
    const scalar = fc.constantFrom(0, 1, -0, 1.5, '1', '', null, true, false);
    const item = fc.oneof(
      scalar,
      fc.array(scalar, { maxLength: 2 }),
      fc.dictionary(fc.constantFrom('a', 'b'), scalar, { maxKeys: 2, noNullPrototype: true }),
    );
    fc.assert(
      fc.property(fc.array(item, { maxLength: 8 }), (items) => {
        expect(linear(items)).toEqual(own(items));
      }),
      { numRuns: 5_000 },
    );
  });
});

describe('a pattern', () => {
  it.each([
    ['^\\d{4}-\\d{2}$', '2026-01', '2026-1'],
    ['^(?<year>\\d+)$', '7', 'x'],
    ['b', 'abc', 'ac'],
    ['^\\p{Lu}', 'Ünder', 'under'],
    ['^a\\/b$', 'a/b', 'ab'],
    ['^\\u0041$', 'A', 'B'],
  ])('%s means what it means in JavaScript', (pattern, good, bad) => {
    const validate = new CachingValidator(() => new AjvJsonSchemaValidator()).getValidator(
      field({ pattern }),
    );
    expect(
      [good, bad].map((text) => [new RegExp(pattern, 'u').test(text), validate({ field: text }).valid]),
    ).toEqual([
      [true, true],
      [false, false],
    ]);
  });

  it('with lookaround is not checked, and its author is warned once', () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const validator = new CachingValidator(() => new AjvJsonSchemaValidator());
    for (const title of ['one', 'two']) {
      const validate = validator.getValidator({ title, ...field({ pattern: '^(?=.*\\d).{8,}$' }) });
      expect(validate({ field: 'short' }).valid).toBe(true);
    }
    expect(warn.mock.calls.map(([message]) => String(message))).toEqual([expect.stringContaining('(?=.*')]);
  });

  it('that is invalid is an error, as in an SDK', () => {
    const validator = new CachingValidator(() => new AjvJsonSchemaValidator());
    expect(() => validator.getValidator(field({ pattern: '(' }))).toThrow();
  });

  it('is left out of a schema where it is one, and not where it is a name or data', () => {
    const schema = {
      properties: { pattern: { type: 'string', pattern: 'x' } },
      const: { pattern: 'x' },
      items: [{ pattern: 'x', minLength: 1 }],
      not: { patternProperties: { x: {} }, type: 'object' },
    };
    expect(withoutPatterns(schema)).toEqual({
      properties: { pattern: { type: 'string' } },
      const: { pattern: 'x' },
      items: [{ minLength: 1 }],
      not: { type: 'object' },
    });
  });
});

describe('compiled schemas', () => {
  it.skipIf(SHORT)('are bounded: what an Ajv keeps of 12,000 goes with it', () => {
    const made: AjvJsonSchemaValidator[] = [];
    const validator = new CachingValidator(() => {
      const inner = new AjvJsonSchemaValidator();
      made.push(inner);
      return inner;
    });
    for (let nth = 0; nth < 12_000; nth += 1) {
      expect(validator.getValidator(field({ minLength: nth }))({ field: 'x' }).valid).toBe(nth <= 1);
    }
    const kept = made.map(
      (inner) => (inner as unknown as { ajv: { _cache: Map<unknown, unknown> } }).ajv._cache.size,
    );
    expect(made.length).toBe(24);
    expect(Math.max(...kept)).toBeLessThanOrEqual(510);
  });

  it.each(KINDS)('of one $id are checked each by its own text, by %s', (_name, make) => {
    const validator = new CachingValidator(make);
    const $id = 'https://example.com/field';
    const text = (minLength: number) => ({ type: 'string', minLength });
    const schemas = [
      (least: number) => ({ $id, ...field({ minLength: least }) }),
      (least: number) => ({
        $id,
        $defs: { text: text(least) },
        properties: { field: { $ref: `${$id}#/$defs/text` } },
      }),
      (least: number) => ({ $defs: { text: { $id, ...text(least) } }, properties: { field: { $ref: $id } } }),
    ];
    for (const [least, schema] of [1, 3, 1, 5].flatMap((one) =>
      schemas.map((make) => [one, make(one)] as const),
    )) {
      const validate = validator.getValidator(schema);
      const fits = [2, 4, 6].map((length) => validate({ field: 'x'.repeat(length) }).valid);
      expect(fits).toEqual([2, 4, 6].map((length) => length >= least));
    }
  });

  it('are shared by servers that use their SDK’s own validator, and by no other', () => {
    const own = { getValidator: () => () => ({ valid: true }) };
    const servers = [classic(), classic(), own].map((held) => ({
      _jsonSchemaValidator: held,
    }));
    for (const server of servers) shareValidator(server as never);
    expect(servers[0]?._jsonSchemaValidator).toBeInstanceOf(CachingValidator);
    expect(servers[0]?._jsonSchemaValidator).toBe(servers[1]?._jsonSchemaValidator);
    expect(servers[2]?._jsonSchemaValidator).toBe(own);
  });
});
