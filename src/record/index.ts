/**
 * `import 'mcp-await/record'`: from then on the values that a call's code gets from `Date`, `Math.random`,
 * `crypto.randomUUID` and `fetch` go into the call's journal, so that a replay gets the same values and sends nothing
 * twice. Nothing changes outside of calls, or inside of steps, whose result is recorded anyway.
 * Values are found by the place in the code that asked for them (`place.ts`); `docs/record.md` lists the
 * exceptions.
 */
import nodeCrypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { currentContext } from '../call/frame/context.ts';
import { patchFetch } from './fetch.ts';
import { placeOf } from './place.ts';

/** Two copies of this package would record everything twice. */
const DONE = Symbol.for('mcp-await.record.1');

const marks = globalThis as { [DONE]?: true };
if (marks[DONE] === undefined) {
  marks[DONE] = true;
  patchClock();
  patchRandom();
  patchFetch();
}

// --- random numbers ---

/** `Math.random`, and `randomUUID` of the global `crypto` and of `node:crypto`. */

type Uuid = ReturnType<typeof nodeCrypto.randomUUID>;

function patchRandom(): void {
  const realRandom = Math.random;
  Math.random = function random(): number {
    const draw = currentContext()?.draw;
    return draw === undefined ? realRandom() : Number(draw(placeOf('random', random), realRandom));
  };

  const realUuid = nodeCrypto.randomUUID;
  nodeCrypto.randomUUID = function randomUUID(options): Uuid {
    const draw = currentContext()?.draw;
    const fresh = (): Uuid => realUuid(options);
    return draw === undefined ? fresh() : asUuid(draw(placeOf('uuid', randomUUID), fresh), fresh);
  };
  // Updates `import { randomUUID } from 'node:crypto'`, a live binding that changes only by this call.
  syncBuiltinESMExports();

  const { crypto } = globalThis;
  const realWebUuid = crypto.randomUUID;
  Object.defineProperty(crypto, 'randomUUID', {
    value: function randomUUID(this: Crypto): Uuid {
      const fresh = (): Uuid => realWebUuid.call(this);
      const draw = currentContext()?.draw;
      return draw === undefined ? fresh() : asUuid(draw(placeOf('uuid', randomUUID), fresh), fresh);
    },
    writable: true,
    configurable: true,
    enumerable: true,
  });
}

/** Checks a UUID read from a journal, whose content may be anything. */
function asUuid(value: unknown, fresh: () => Uuid): Uuid {
  return typeof value === 'string' && value.split('-').length === 5 ? (value as Uuid) : fresh();
}

// --- the clock ---

/** `new Date()`, `Date()` and `Date.now()`. */

function patchClock(): void {
  const Real = globalThis.Date;
  const realNow = Real.now;

  /** @param below the function that the tool called */
  const read = (below: typeof now | typeof RecordedDate): number => {
    const draw = currentContext()?.draw;
    return draw === undefined ? realNow() : Number(draw(placeOf('now', below), realNow));
  };

  function now(): number {
    return read(now);
  }

  // A function, since a class cannot be called, and a Proxy would make each Date.now() a slow one.
  function RecordedDate(this: unknown, ...parts: unknown[]): unknown {
    if (new.target === undefined) return new Real(read(RecordedDate)).toString();
    // V8 is slow to make an instance for another constructor; only subclasses need that.
    const target = new.target === RecordedDate ? Real : new.target;
    return Reflect.construct(Real, parts.length === 0 ? [read(RecordedDate)] : parts, target);
  }

  // Copies statics, `length`, `name` and the prototype itself, so that earlier dates are instances still.
  Object.defineProperties(RecordedDate, {
    ...Object.getOwnPropertyDescriptors(Real),
    now: { value: now, writable: true, configurable: true, enumerable: false },
  });
  for (const [owner, name] of [
    [globalThis, 'Date'],
    [Real.prototype, 'constructor'],
  ] as const) {
    Object.defineProperty(owner, name, {
      value: RecordedDate,
      writable: true,
      configurable: true,
      enumerable: false,
    });
  }
}
