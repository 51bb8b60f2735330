/** What a call's tokens and its takers-up must agree in. */
import { digest, type JsonObject } from './json.ts';
import type { Binding } from './ports.ts';

interface Bound {
  readonly revision: string;
  readonly method: string;
  readonly params: JsonObject;
  readonly principal?: string | undefined;
}

/** @param args what of the params must stay the same; default: all of them */
export function bindingOf({ revision, method, params, principal }: Bound, args = params): Binding {
  return {
    revision,
    method,
    target: String(params.name ?? params.uri ?? ''),
    args: digest(args),
    ...(principal !== undefined && { principal }),
  };
}
