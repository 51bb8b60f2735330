/** Whether a request came from this machine: then callers without a name count as one person. */
import { isLoopback } from './address.ts';
import type { Inbound } from './exchange.ts';

const LOCAL_NAMES: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]']);
/** Headers that reverse proxies and tunnels add. */
const FORWARDING = [
  'forwarded',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'cf-connecting-ip',
  'true-client-ip',
];

/** Whether the socket and the `Host` are loopback, and no header shows a proxy. */
export function isLocal(inbound: Pick<Inbound, 'address' | 'header'>): boolean {
  const { address } = inbound;
  if (address === undefined || !isLoopback(address)) return false;
  const host = `http://${inbound.header('host') ?? ''}`;
  if (!URL.canParse(host) || !LOCAL_NAMES.has(new URL(host).hostname)) return false;
  return FORWARDING.every((name) => inbound.header(name) === undefined);
}
