/** Whatever a step returns or throws is the same to its tool live and replayed, and the step runs once. */
import { deepStrictEqual } from 'node:assert';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isJson } from '../../src/base/values.ts';
import { complete, MemoryStore, resultOf, start, workbench } from './bench.ts';

type Given = { readonly value: unknown } | { readonly thrown: Error & { code?: unknown; data?: unknown } };

/** Runs a step once and replays its tool once: the step's outcomes in both. */
async function given(work: () => unknown): Promise<[live: Given, replayed: Given]> {
  let runs = 0;
  const seen: Given[] = [];
  const { engine } = workbench(
    async ({ step, elicit }) => {
      try {
        seen.push({
          value: await step('x', () => {
            runs += 1;
            return work();
          }),
        });
      } catch (thrown) {
        seen.push({ thrown: thrown as Error });
      }
      await elicit('one');
      return 'done';
    },
    { store: new MemoryStore(), limits: { frames: 0 } },
  );
  expect(resultOf(await complete(await start(engine), () => engine))).toBe('done');
  expect(runs).toBe(1);
  const [live, replayed] = seen;
  if (live === undefined || replayed === undefined) throw new Error('the tool is run twice');
  return [live, replayed];
}

const throwing = (thrown: unknown) => (): never => {
  throw thrown;
};

const HOSTILE: [string, () => unknown][] = [
  ['an object without a prototype', () => Object.create(null)],
  ['an error whose message is a BigInt', () => Object.assign(new Error('x'), { message: 1n })],
  ['an error whose name is a BigInt', () => Object.assign(new Error('x'), { name: 2n })],
  ['an error whose name is an object without a prototype', () => withName(Object.create(null))],
  ['an error whose data holds a BigInt', () => Object.assign(new Error('x'), { data: { deep: [3n] } })],
  ['an error whose code is NaN', () => Object.assign(new Error('x'), { code: Number.NaN })],
  ['an error whose code is -0', () => Object.assign(new Error('x'), { code: -0 })],
  ['a getter that throws', () => withGetter('message')],
  ['data whose getter throws', () => Object.assign(new Error('x'), { data: withGetter('inside') })],
  ['a proxy whose traps throw', () => new Proxy({}, TRAPS)],
  ['a proxy of a function', () => new Proxy(() => {}, TRAPS)],
  ['a revoked proxy', revoked],
  ['a symbol', () => Symbol('x')],
  ['a BigInt', () => 4n],
  ['undefined', () => undefined],
  ['null', () => null],
  ['a cycle', cycle],
  ['an object deeper than a stack', deep],
  ['a text with half a surrogate', () => '\ud800'],
  ['a message with a NUL', () => new Error('a\u0000b')],
];

const fail = (): never => {
  throw new Error('a trap');
};
const TRAPS: ProxyHandler<object> = { get: fail, getPrototypeOf: fail, ownKeys: fail, has: fail };

function withName(name: unknown): unknown {
  return Object.assign(new Error('x'), { name });
}

function withGetter(name: string): object {
  return Object.defineProperty({}, name, { enumerable: true, get: fail });
}

function revoked(): unknown {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function cycle(): unknown {
  const round: { self?: unknown } = {};
  round.self = round;
  return round;
}

function deep(): unknown {
  let value: unknown = [];
  for (let nth = 0; nth < 20_000; nth += 1) value = [value];
  return value;
}

describe('a step', () => {
  it.each(HOSTILE)('that throws %s is recorded, and throws the same when it is replayed', async (_, make) => {
    const [live, replayed] = await given(throwing(make()));
    expect('thrown' in live && live.thrown).toBeInstanceOf(Error);
    deepStrictEqual(replayed, live);
  });

  it.each(HOSTILE)(
    'that returns %s is done once, and gives the same when it is replayed',
    async (_, make) => {
      const [live, replayed] = await given(make);
      deepStrictEqual(replayed, live);
    },
  );

  it('keeps of an error its name, message, code and data', async () => {
    const thrown = Object.assign(new RangeError('no'), { code: 'E', data: { left: 1 }, other: 'lost' });
    const [live] = await given(throwing(thrown));
    expect('thrown' in live && { ...live.thrown, message: live.thrown.message }).toEqual({
      name: 'RangeError',
      message: 'no',
      code: 'E',
      data: { left: 1 },
    });
  });

  const anything = fc.anything({
    withBigInt: true,
    withBoxedValues: true,
    withDate: true,
    withMap: true,
    withSet: true,
    withNullPrototype: true,
    withObjectString: true,
    withSparseArray: true,
    withTypedArray: true,
    withUnicodeString: true,
  });
  /** As above, and objects that look like errors, with any value in the members that are recorded. */
  const errors = fc
    .record({
      isError: fc.boolean(),
      fields: fc.dictionary(fc.constantFrom('name', 'message', 'code', 'data'), anything),
    })
    .map(({ isError, fields }) => Object.assign(isError ? new TypeError('meant') : {}, fields));

  it('gives any returned value alike live and replayed: its copy through JSON, or the error that it has none', async () => {
    const property = fc.asyncProperty(anything, async (value) => {
      const [live, replayed] = await given(() => value);
      deepStrictEqual(replayed, live);
      if ('thrown' in live) expect(live.thrown).toMatchObject({ code: 'step-not-json' });
      else if (value !== undefined) deepStrictEqual(live.value, JSON.parse(JSON.stringify(value)));
      expect('thrown' in live).toBe(value !== undefined && !isJson(value));
    });
    await fc.assert(property, { numRuns: 300 });
  });

  it('throws any thrown value alike live and replayed', async () => {
    const property = fc.asyncProperty(fc.oneof(anything, errors), async (thrown) => {
      const [live, replayed] = await given(throwing(thrown));
      deepStrictEqual(replayed, live);
      expect('thrown' in live && live.thrown).toBeInstanceOf(Error);
      if (thrown instanceof TypeError && typeof thrown.message === 'string')
        expect('thrown' in live && live.thrown.message).toBe(thrown.message);
    });
    await fc.assert(property, { numRuns: 300 });
  });
});
