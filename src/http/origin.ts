/**
 * Who may talk to this endpoint from a browser. A request without `Origin` comes from no browser; any other
 * must come from this machine or from an origin that was allowed (DNS rebinding).
 */
import type { Inbound, Reply } from './exchange.ts';
import { rpcError } from './reply.ts';

export interface OriginRules {
  /** Origins (`https://app.example`) or host names (`app.example`); `*` allows every one. */
  readonly origins: readonly string[];
  /** Names of this host; `undefined` leaves `Host` unchecked, as behind a proxy. */
  readonly hosts?: readonly string[];
}

const LOCAL: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]']);

/** The refusal of a foreign origin or host; undefined when the request may go on. */
export function refuseForeign(inbound: Inbound, rules: OriginRules): Reply | undefined {
  const origin = inbound.header('origin');
  if (origin !== undefined && origin !== '' && !allowed(origin, rules.origins)) {
    return rpcError(403, -32000, 'Forbidden: this Origin is not allowed');
  }
  const host = inbound.header('host');
  if (rules.hosts !== undefined && host !== undefined && !isOneOf(hostname(`http://${host}`), rules.hosts)) {
    return rpcError(403, -32000, 'Forbidden: this Host is not allowed');
  }
  return undefined;
}

function allowed(origin: string, origins: readonly string[]): boolean {
  if (origins.includes('*') || origins.includes(origin)) return true;
  return isOneOf(hostname(origin), origins);
}

function isOneOf(name: string | undefined, names: readonly string[]): boolean {
  return name !== undefined && (LOCAL.has(name) || names.includes(name));
}

function hostname(url: string): string | undefined {
  try {
    return new URL(url).hostname;
  } catch {
    return undefined;
  }
}
