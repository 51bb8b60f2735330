import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isSensitive } from '../../src/ask/page/controls.ts';
import { type FieldErrors, firstForm, formOf, formWith, readForm } from '../../src/ask/page/form.ts';
import type { JsonObject } from '../../src/base/values.ts';
import { serverOptions } from '../../src/host/validator.ts';

function schemaOf(properties: JsonObject, required: readonly string[] = []): JsonObject {
  return { type: 'object', properties, required };
}

/** What a form with one field says, by what its control holds. */
function read(field: JsonObject, texts: string | readonly string[], isRequired = false): unknown {
  const form = new URLSearchParams([texts].flat().map((text) => ['field.x', text]));
  const result = readForm(schemaOf({ x: field }, isRequired ? ['x'] : []), form);
  return 'errors' in result ? result.errors.x : result.content.x;
}

interface Sample {
  readonly field: JsonObject;
  readonly value: unknown;
}

/** Texts as browsers submit them: with no lone surrogates, and with LF at the ends of lines. */
const line = fc.string({ unit: 'grapheme' }).filter((text) => text !== '' && !text.includes('\r'));
const lengths = (text: string): JsonObject => ({ minLength: [...text].length, maxLength: [...text].length });
const values = fc.uniqueArray(fc.string({ unit: 'binary' }), { minLength: 1, maxLength: 15 });
const instant = fc.date({ min: new Date(0), max: new Date('9999-12-31T23:59:59Z'), noInvalidDate: true });
const label = fc.stringMatching(/^[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?$/);

/** Each kind of field of the three revisions, with a value that it takes. */
const KINDS: Readonly<Record<string, fc.Arbitrary<Sample>>> = {
  string: line.map((value) => ({ field: { type: 'string' }, value })),
  'string with lengths': line.map((value) => ({ field: { type: 'string', ...lengths(value) }, value })),
  'string of several lines': fc
    .array(line, { minLength: 2 })
    .map((lines) => ({ field: { type: 'string', maxLength: 10_000 }, value: lines.join('\n') })),
  'string with a pattern': fc
    .stringMatching(/^[A-Z]{3}-\d+$/)
    .map((value) => ({ field: { type: 'string', pattern: '^[A-Z]{3}-\\d+$' }, value })),
  email: fc.tuple(label, label, label).map(([user, host, top]) => ({
    field: { type: 'string', format: 'email' },
    value: `${user}+x@${host}.${top}`,
  })),
  uri: fc.webUrl({ withFragments: true, withQueryParameters: true }).map((value) => ({
    field: { type: 'string', format: 'uri' },
    value,
  })),
  date: instant.map((at) => ({
    field: { type: 'string', format: 'date' },
    value: at.toISOString().slice(0, 10),
  })),
  'date-time': instant.map((at) => ({
    field: { type: 'string', format: 'date-time' },
    value: at.toISOString().replace('Z', '+02:00'),
  })),
  number: fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => ({
    field: { type: 'number', minimum: value, maximum: value },
    value: value === 0 ? 0 : value,
  })),
  integer: fc.maxSafeInteger().map((value) => ({
    field: { type: 'integer', minimum: value, maximum: value },
    value,
  })),
  boolean: fc.boolean().map((value) => ({ field: { type: 'boolean' }, value })),
  enum: values.map((all) => ({ field: { type: 'string', enum: all }, value: all.at(-1) })),
  'enum with enumNames': values.map((all) => ({
    field: { type: 'string', enum: all, enumNames: all.map((_, index) => `choice ${index % 2}`) },
    value: all.at(-1),
  })),
  'titled enum': values.map((all) => ({
    field: { type: 'string', oneOf: all.map((value) => ({ const: value, title: 'the same' })) },
    value: all[0],
  })),
  'multi-select': values.chain((all) =>
    fc.shuffledSubarray(all, { minLength: 1 }).map((value) => ({
      field: {
        type: 'array',
        items: { type: 'string', enum: all },
        minItems: value.length,
        maxItems: value.length,
      },
      value,
    })),
  ),
  'titled multi-select': values.chain((all) =>
    fc.subarray(all, { minLength: 1 }).map((value) => ({
      field: { type: 'array', items: { anyOf: all.map((one) => ({ const: one, title: one })) } },
      value,
    })),
  ),
};
const names = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', 'action', 'token', 'key', 'toString', '', 'a\nb', '1'),
  fc.string(),
);

describe('a form', () => {
  it.each(Object.keys(KINDS))('reads back what it was filled in with: %s', (kind) => {
    const samples = KINDS[kind] ?? fc.constant(undefined as never);
    const validator = serverOptions().jsonSchemaValidator;
    fc.assert(
      fc.property(names, samples, fc.boolean(), (name, { field, value }, isRequired) => {
        const schema = schemaOf(Object.fromEntries([[name, field]]), isRequired ? [name] : []);
        const content = Object.fromEntries([[name, value]]);
        // The sample is one: the SDK's validator takes it, too.
        expect(validator.getValidator({ ...field, $id: undefined })(value).errorMessage).toBeUndefined();
        const sent = formWith(formOf(schema), content).toString();
        const result = readForm(schema, new URLSearchParams(sent));
        expect('content' in result && Object.entries(result.content)).toEqual([[name, value]]);
      }),
      { numRuns: 200 },
    );
  });

  it('has the defaults at first, and only those that its fields take', () => {
    const schema = schemaOf({
      name: { type: 'string', default: 'Ann' },
      size: {
        type: 'string',
        oneOf: [
          { const: 's', title: 'Small' },
          { const: 'l', title: 'Large' },
        ],
        default: 'l',
      },
      tags: { type: 'array', items: { enum: ['a', 'b', 'c'] }, default: ['a', 'c', 'x'] },
      sure: { type: 'boolean', default: false },
      count: { type: 'integer', default: 3 },
      wrong: { type: 'integer', default: 'three' },
      none: { type: 'string', enum: ['a'], default: 'b' },
      open: { enum: [null, 'a'] },
    });
    expect(readForm(schema, firstForm(formOf(schema)))).toEqual({
      content: { name: 'Ann', size: 'l', tags: ['a', 'c'], sure: false, count: 3 },
    });
  });

  it('leaves out what is empty and not required', () => {
    const fields = {
      text: { type: 'string', minLength: 3 },
      mail: { type: 'string', format: 'email' },
      count: { type: 'integer', minimum: 1 },
      sure: { type: 'boolean' },
      size: { type: 'string', enum: ['', 's'] },
      tags: { type: 'array', items: { enum: ['a'] }, minItems: 1 },
      nested: { type: 'object' },
    };
    const empty = new URLSearchParams(Object.keys(fields).map((name) => [`field.${name}`, '']));
    expect(readForm(schemaOf(fields), empty)).toEqual({ content: {} });
    expect(readForm(schemaOf(fields), new URLSearchParams())).toEqual({ content: {} });
    const required = readForm(schemaOf(fields, Object.keys(fields)), empty);
    expect('errors' in required && Object.keys(required.errors)).toEqual(Object.keys(fields));
  });

  it('takes an empty list where a list is required, and an empty text that is a choice', () => {
    expect(read({ type: 'array', items: { enum: ['a'] } }, [], true)).toEqual([]);
    expect(read({ type: 'string', enum: ['', 's'] }, '0', true)).toBe('');
  });

  it('reads lines and spaces as a browser sends them', () => {
    expect(read({ type: 'string' }, 'one\r\ntwo')).toBe('one\ntwo');
    expect(read({ type: 'string' }, ' a ')).toBe(' a ');
    expect(read({ type: 'string', format: 'email' }, ' ann@example.com ')).toBe('ann@example.com');
    expect(read({ type: 'integer' }, ' 7 ')).toBe(7);
  });
});

const TEXT = { type: 'string' };
const MAIL = { type: 'string', format: 'email' };
const URI = { type: 'string', format: 'uri' };
const DATE = { type: 'string', format: 'date' };
const TIME = { type: 'string', format: 'date-time' };
const LIST = { type: 'array', items: { enum: ['a', 'b', 'c'] }, minItems: 2, maxItems: 2 };

describe('a field', () => {
  it.each([
    [TEXT, '', /^Enter a value\.$/],
    [{ ...TEXT, minLength: 3 }, '👍👍', /^Enter at least 3 characters; this has 2\.$/],
    [{ ...TEXT, maxLength: 1 }, '👍👍', /^Enter at most 1 character; this has 2\.$/],
    [{ ...TEXT, pattern: '^[A-Z]{3}$' }, 'abc', /matches the pattern \^\[A-Z\]\{3\}\$$/],
    [MAIL, 'ann', /^Enter an email address/],
    [MAIL, 'ann@home', /^Enter an email address/],
    [MAIL, 'a@b@c.de', /^Enter an email address/],
    [MAIL, '.ann@example.com', /^Enter an email address/],
    [MAIL, 'ann@-example.com', /^Enter an email address/],
    [URI, 'example.com', /^Enter a whole URL/],
    [URI, 'https://', /^Enter a whole URL/],
    [URI, 'https://example.com/a b', /^Enter a whole URL/],
    [URI, 'https://example.com/%zz', /^Enter a whole URL/],
    [DATE, '31.1.2026', /^Enter a date/],
    [DATE, '2026-02-30', /^Enter a date/],
    [DATE, '2026-13-01', /^Enter a date/],
    [DATE, '2026-01-31T00:00', /^Enter a date/],
    [TIME, '2026-01-31T12:00:00', /^Enter a date and time with its zone/],
    [TIME, '2026-02-30T12:00:00Z', /^Enter a date and time with its zone/],
    [TIME, '2026-01-31T24:00:00Z', /^Enter a date and time with its zone/],
    [TIME, '2026-01-31T12:00:00+25:00', /^Enter a date and time with its zone/],
    [{ type: 'number' }, '', /^Enter a number\.$/],
    [{ type: 'number' }, '1,5', /^Enter a number, such as 1\.5\.$/],
    [{ type: 'number' }, '0x10', /^Enter a number, such as/],
    [{ type: 'number' }, 'Infinity', /^Enter a number, such as/],
    [{ type: 'number' }, '1e999', /^Enter a number, such as/],
    [{ type: 'number', minimum: 0.5 }, '0.4', /^Enter 0\.5 or more\.$/],
    [{ type: 'number', maximum: 2 }, '2.1', /^Enter 2 or less\.$/],
    [{ type: 'integer' }, '1.5', /^Enter a whole number/],
    [{ type: 'integer' }, '9007199254740993', /^Enter a number of at most 9007199254740991/],
    [{ type: 'number' }, '9007199254740993', /^Enter a number of at most 9007199254740991/],
    [{ type: 'boolean' }, '', /^Choose one\.$/],
    [{ type: 'boolean' }, 'true', /^Choose one of the listed values\.$/],
    [{ ...TEXT, enum: ['a', 'b'] }, '2', /^Choose one of the listed values\.$/],
    [{ ...TEXT, enum: ['a', 'b'] }, '-1', /^Choose one of the listed values\.$/],
    [{ ...TEXT, enum: ['a', 'b'] }, 'length', /^Choose one of the listed values\.$/],
    [LIST, [], /^Choose at least 2\.$/],
    [LIST, ['0', '0'], /^Choose at least 2\.$/],
    [LIST, ['0', '1', '2'], /^Choose at most 2\.$/],
    [LIST, ['0', '7'], /^Choose one of the listed values\.$/],
    [TEXT, ['a', 'b'], /^Give one value only\.$/],
    [{ type: 'object' }, '{}', /^This page cannot ask for this/],
  ] as const)('%j with %j says what to do', (field, texts, error) => {
    expect(read(field, texts, true)).toMatch(error);
  });

  it.each([
    [{ ...TEXT, minLength: 2, maxLength: 2 }, '👍👍', '👍👍'],
    [{ ...TEXT, pattern: '[A-Z]{3}' }, 'an ABC', 'an ABC'],
    [MAIL, "o'brien+x@mail.example.co.uk", "o'brien+x@mail.example.co.uk"],
    [URI, 'urn:isbn:0451450523', 'urn:isbn:0451450523'],
    [DATE, '2028-02-29', '2028-02-29'],
    [TIME, '2026-01-31t12:00:00.125z', '2026-01-31t12:00:00.125z'],
    [{ type: 'number' }, '-1.5e3', -1500],
    [{ type: 'number' }, '.5', 0.5],
    [{ type: 'integer' }, '-9007199254740991', -9007199254740991],
    [LIST, ['2', '0'], ['c', 'a']],
  ] as const)('%j takes %j', (field, texts, value) => {
    expect(read(field, texts, true)).toEqual(value);
  });
});

describe('a hostile form', () => {
  const fields = {
    text: TEXT,
    patterned: { type: 'string', pattern: '^(a+)+$' },
    mail: MAIL,
    uri: URI,
    date: DATE,
    time: TIME,
    number: { type: 'number' },
    integer: { type: 'integer' },
    sure: { type: 'boolean' },
    size: { type: 'string', enum: ['s', 'l'] },
    tags: { type: 'array', items: { anyOf: [{ const: 'a', title: 'A' }] } },
    nested: { type: 'object' },
    constructor: TEXT,
  };
  const schema = schemaOf(fields, Object.keys(fields));

  it('never throws, and gives no field that the schema does not have', () => {
    const name = fc.oneof(
      fc.constantFrom(...Object.keys(fields), '__proto__', 'toString', 'length').map((one) => `field.${one}`),
      fc.string({ unit: 'binary' }),
    );
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('0', '-1', 'NaN', '1e400', '__proto__'),
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(name, text), { maxLength: 60 }), fc.boolean(), (entries, isRequired) => {
        const result = readForm(isRequired ? schema : schemaOf(fields), new URLSearchParams(entries));
        const given: JsonObject | FieldErrors = 'content' in result ? result.content : result.errors;
        expect(Object.keys(fields)).toEqual(expect.arrayContaining(Object.keys(given)));
        expect(Object.getPrototypeOf(given)).toBe(Object.prototype);
      }),
      { numRuns: 500 },
    );
  });

  it('is read in linear time, whatever its fields hold', () => {
    const long = [
      'a'.repeat(100_000),
      `${'a'.repeat(100_000)}!`,
      `${'a.'.repeat(50_000)}@${'b-.'.repeat(30_000)}`,
      `a@${'b'.repeat(100_000)}`,
      `https://${'%20'.repeat(30_000)} `,
      '9'.repeat(100_000),
      `2026-01-31T12:00:00.${'0'.repeat(100_000)}`,
      '\r\n'.repeat(50_000),
    ];
    // A pattern that backtracks would take hours.
    for (const text of long) {
      const form = new URLSearchParams(Object.keys(fields).map((name) => [`field.${name}`, text]));
      expect(readForm(schema, form)).toHaveProperty('errors');
    }
  });

  it('is matched for a moment in all, and an ordinary one as long as it takes', async () => {
    const pattern = '^(?:[a-z]?){200}';
    const properties = Object.fromEntries(
      Array.from({ length: 8 }, (_, nth) => [`f${nth}`, { type: 'string', pattern }]),
    );
    const formFor = (names: readonly string[], text: string) =>
      new URLSearchParams(names.map((name) => [`field.${name}`, text]));
    const long = 'b'.repeat(5_000);
    expect(readForm(schemaOf(properties), formFor(Object.keys(properties), long))).toHaveProperty('errors');
    for (const name of Object.keys(properties)) {
      await null;
      expect(readForm(schemaOf(properties), formFor([name], long))).toHaveProperty('content');
    }
    const notes = { type: 'string', pattern: '^[\\s\\S]*$' };
    expect(read(notes, 'a line\n'.repeat(1_500))).toHaveLength(10_500);
  });

  it('does not set a prototype, even where the schema names it', () => {
    const properties = JSON.parse('{"__proto__":{"type":"string"}}');
    const read = readForm(schemaOf(properties), new URLSearchParams([['field.__proto__', 'x']]));
    expect(JSON.stringify(read)).toBe('{"content":{"__proto__":"x"}}');
    const missing = readForm(schemaOf(properties, ['__proto__']), new URLSearchParams());
    expect(JSON.stringify(missing)).toBe('{"errors":{"__proto__":"Enter a value."}}');
  });

  it.each([
    {},
    { properties: null },
    { properties: [] },
    { properties: { x: null, y: 'string', z: [] }, required: 'x' },
    { properties: { x: { type: 'array', items: 7 }, y: { enum: [] }, z: { oneOf: [null, {}] } } },
    { properties: { x: { type: 'string', minLength: 'a', pattern: '(', format: 'toString', title: 1 } } },
  ])('is read by the schema %j', (odd) => {
    expect(formOf(odd).map(({ isRequired }) => isRequired)).not.toContain(true);
    const form = new URLSearchParams('field.x=0&field.y=0&field.z=0');
    expect(() => [readForm(odd, form), firstForm(formOf(odd))]).not.toThrow();
  });
});

describe('a field that looks like a secret', () => {
  const isMarked = (name: string, field: JsonObject): boolean | undefined => {
    const [first] = formOf(schemaOf({ [name]: field }));
    return first && isSensitive(name, first);
  };

  it.each([
    ['password', TEXT],
    ['userPassword', TEXT],
    ['db_passwd', TEXT],
    ['x', { ...TEXT, title: 'Pass phrase' }],
    ['x', { ...TEXT, title: 'Your secret' }],
    ['accessToken', TEXT],
    ['x', { ...TEXT, description: 'The API key of your account' }],
    ['OPENAI_API_KEY', TEXT],
    ['apiKey', TEXT],
    ['APIKey', TEXT],
    ['pin', { type: 'integer' }],
    ['x', { ...TEXT, title: 'CVV' }],
    ['x', { ...TEXT, title: 'Card number' }],
    ['creditCardNumber', { type: 'number' }],
    ['x', { ...TEXT, title: 'One-time code' }],
  ])('is marked: %s %j', (name, field) => {
    expect(isMarked(name, field)).toBe(true);
  });

  it.each([
    ['name', TEXT],
    ['max_tokens', { type: 'integer' }],
    ['secretary', TEXT],
    ['shipping', TEXT],
    ['pinned', TEXT],
    ['cardinality', { type: 'integer' }],
    ['pin', { type: 'boolean' }],
    ['key', TEXT],
    ['token', { type: 'string', enum: ['word', 'byte'] }],
  ])('is not marked: %s %j', (name, field) => {
    expect(isMarked(name, field)).toBe(false);
  });
});
