/** The facts that a token and a takeover must match: revision, method, target, digest of the arguments, caller. */
import { digest, type JsonObject } from '../../base/json.ts';

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
export function bindingOf({ revision, method, params, principal }: Bound, args = params): Binding {
  return {
    revision,
    method,
    target: String(params.name ?? params.uri ?? ''),
    // A request without arguments has the same digest as one with `{}`.
    args: digest({ ...args, arguments: args.arguments ?? {} }),
    ...(principal !== undefined && { principal }),
  };
}
