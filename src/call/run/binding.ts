/** The facts that a token and a takeover must match: revision, method, target, digest of the arguments, caller. */
import { digest } from '../../base/digest.ts';
import type { JsonObject } from '../../base/values.ts';

/** The facts that a token is bound to; all are checked before the store is read. */
export interface Binding {
  readonly revision: string;
  readonly method: string;
  /** The tool, the prompt, or the resource's URI. */
  readonly target: string;
  /** Digest of the arguments. */
  readonly args: string;
  readonly principal?: string;
}

interface Bound {
  readonly revision: string;
  readonly method: string;
  readonly params: JsonObject;
  readonly principal?: string | undefined;
}

/** @param args the part of the params that must stay the same; default: all of them */
export function bindingOf(bound: Bound, args = bound.params): Binding {
  return new BindingOf(bound, args);
}

/** Digests the arguments when a token needs that: most calls of sessions have none. */
class BindingOf implements Binding {
  readonly revision: string;
  readonly method: string;
  readonly target: string;
  declare readonly principal?: string;
  readonly #bound: JsonObject;
  #args: string | undefined;

  constructor({ revision, method, params, principal }: Bound, args: JsonObject) {
    this.revision = revision;
    this.method = method;
    this.target = String(params.name ?? params.uri ?? '');
    if (principal !== undefined) this.principal = principal;
    this.#bound = args;
  }

  get args(): string {
    // A request without arguments has the same digest as one with `{}`.
    this.#args ??= digest({ ...this.#bound, arguments: this.#bound.arguments ?? {} });
    return this.#args;
  }

  toJSON(): Binding {
    return { ...this, args: this.args };
  }
}
