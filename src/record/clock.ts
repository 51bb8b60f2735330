/** `new Date()`, `Date()` and `Date.now()`. */
import { currentContext } from '../call/frame/context.ts';
import { placeOf } from './place.ts';

export function patchClock(): void {
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
