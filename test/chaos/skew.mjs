// Loaded before anything else in a process of the chaos run: its `Date` is off by CHAOS_SKEW milliseconds.
const shift = Number(process.env.CHAOS_SKEW ?? 0);
const now = () => Real.now() + shift;
const Real = Date;
globalThis.Date = new Proxy(Real, {
  construct: (target, args, made) => Reflect.construct(target, args.length === 0 ? [now()] : args, made),
  apply: () => new Real(now()).toString(),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
});
