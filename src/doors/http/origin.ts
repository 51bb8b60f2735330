/**
 * Checks which pages may use this endpoint from a browser, and which host names it answers to.
 * A foreign page shows by headers that it cannot forge: `Origin`, and `Sec-Fetch-Site`, which browsers also send with a
 * GET that carries no `Origin` (https://www.w3.org/TR/fetch-metadata/). A rebound name shows in `Host`, which is
 * therefore checked wherever a connection came in on a loopback address.
 */
import { hostName, parsedName } from './address.ts';
import type { Inbound, Reply } from './exchange.ts';
import { empty, rpcError } from './reply.ts';

export interface OriginRules {
  /** Origins (`https://app.example`) or host names (`app.example`); `*` allows every one. */
  readonly origins: readonly string[];
  /** Names of this host besides this machine's own; `*` allows every one. Undefined: checked on loopback alone. */
  readonly hosts: readonly string[] | undefined;
}

/** A refused request: the reply for its client, and the reason for the logger. */
export interface Refusal {
  readonly reply: Reply;
  readonly message: string;
  /** Raw values from the request; the logger escapes them. */
  readonly detail: Readonly<Record<string, string>>;
}

/** Response headers that a page on an allowed origin may read. */
const EXPOSED = 'Mcp-Session-Id, MCP-Protocol-Version, Mcp-Stream-Id, Retry-After, WWW-Authenticate';
/** How long a browser may remember a preflight, in seconds. */
const PREFLIGHT_AGE = 600;
/** Longest list of headers that the reply to a preflight allows, in characters. */
const HEADERS_LENGTH = 2_000;
/** Names that are this machine's wherever they are asked for (RFC 6761, section 6.3). */
const THIS_MACHINE = /^(?:(?:.*\.)?localhost|\[::1\]|127(?:\.\d{1,3}){3})$/;

/** The refusal of a foreign page or a foreign name of this host; undefined when the request may go on. */
export function refuseForeign(
  inbound: Pick<Inbound, 'header' | 'onLoopback'>,
  { origins, hosts }: OriginRules,
): Refusal | undefined {
  const origin = inbound.header('origin') ?? '';
  const isAllowed = allows(origins, origin, parsedName);
  const site = inbound.header('sec-fetch-site') ?? '';
  const isForeign = origin !== '' || site === 'cross-site' || site === 'same-site';
  if (isForeign && !isAllowed) {
    return {
      reply: rpcError(403, -32000, 'Forbidden: this Origin is not allowed'),
      message:
        'a page of another site was refused; if it is yours, add its origin to allowedOrigins (--allow-origin)',
      detail: { origin, site },
    };
  }
  const host = inbound.header('host');
  const isChecked = hosts !== undefined || inbound.onLoopback === true;
  if (host === undefined || !isChecked || allows(hosts ?? [], host, hostName)) return undefined;
  return {
    reply: rpcError(421, -32000, 'Misdirected Request: this Host is not served here'),
    message:
      'a request for another host was refused; if a proxy passes it on, add its name to allowedHosts (--allow-host)',
    detail: { host },
  };
}

/** A reply that a page may read, where one asked: refused ones never come here. */
export function withCors(inbound: Pick<Inbound, 'header'>, reply: Reply): Reply {
  const origin = inbound.header('origin');
  if (origin === undefined || origin === '') return reply;
  const headers = {
    ...reply.headers,
    'access-control-allow-origin': origin,
    'access-control-expose-headers': EXPOSED,
    vary: 'origin',
  };
  return { ...reply, headers };
}

/** The reply to a browser that asks before it sends; undefined for any other OPTIONS. */
export function preflight(inbound: Pick<Inbound, 'header'>, methods: string): Reply | undefined {
  if (inbound.header('access-control-request-method') === undefined) return undefined;
  const wanted = inbound.header('access-control-request-headers') ?? '';
  const isList = wanted.length <= HEADERS_LENGTH && /^[\w!#$%&'*+.^`|~,\t -]+$/.test(wanted);
  return empty(204, {
    'access-control-allow-methods': methods,
    ...(isList && { 'access-control-allow-headers': wanted }),
    'access-control-max-age': String(PREFLIGHT_AGE),
    // A page of a public site asks for a server on this machine.
    ...(inbound.header('access-control-request-private-network') === 'true' && {
      'access-control-allow-private-network': 'true',
    }),
  });
}

/** Which page a request is of, in words that no page can write; empty for a program. */
export function pageOf(inbound: Inbound): string {
  const site = inbound.header('sec-fetch-site');
  // A page's own GET has no `Origin`, and its POST has one.
  return site === 'same-origin' ? site : (inbound.header('origin') ?? site ?? '');
}

/** @param nameIn the host's name in a value */
function allows(
  allowed: readonly string[],
  value: string,
  nameIn: (value: string) => string | undefined,
): boolean {
  if (allowed.includes('*') || allowed.includes(value)) return true;
  const name = nameIn(value);
  return name !== undefined && (THIS_MACHINE.test(name) || allowed.includes(name));
}
