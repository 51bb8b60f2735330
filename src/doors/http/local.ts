/** Whether a request came from this machine: then callers without a name count as one person. */
import { hostName, isLoopback } from './address.ts';
import type { Inbound } from './exchange.ts';

const LOCAL_NAMES: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]']);
/** Headers that reverse proxies and tunnels add. */
const FORWARDING = [
  'forwarded',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-server',
  'x-real-ip',
  'x-client-ip',
  'x-azure-clientip',
  'x-amzn-trace-id',
  'x-envoy-external-address',
  'cf-connecting-ip',
  'cf-ray',
  'fastly-client-ip',
  'fly-client-ip',
  'true-client-ip',
];

/** Whether the socket and the `Host` are loopback, and no header shows a proxy. */
export function isLocal(inbound: Pick<Inbound, 'address' | 'header'>): boolean {
  const { address } = inbound;
  if (address === undefined || !isLoopback(address)) return false;
  if (!LOCAL_NAMES.has(hostName(inbound.header('host') ?? '') ?? '')) return false;
  return FORWARDING.every((name) => inbound.header(name) === undefined);
}
