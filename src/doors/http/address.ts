/** The origin of a connection, and the name that follows from it. */
import type { IncomingMessage } from 'node:http';
import type { Inbound } from './exchange.ts';

/** Whether an address is this machine's own (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.3). */
export function isLoopback(address: string): boolean {
  const plain = address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address;
  return plain === '::1' || plain.startsWith('127.');
}

/**
 * The address to count an anonymous caller by.
 * @returns undefined for this machine's own: that is a proxy, or anything that runs here
 */
export function countedAddress({ address }: { readonly address?: string }): string | undefined {
  return address === undefined || isLoopback(address) ? undefined : address;
}

let known: { readonly host: string; readonly name: string | undefined } | undefined;

/**
 * The name in a `Host` header, without its port; undefined where it is not one. Parsing takes longer than many other
 * things that are done for a request, and nearly all requests name one host.
 */
export function hostName(host: string): string | undefined {
  if (known?.host !== host) known = { host, name: parsedName(`http://${host}`) };
  return known.name;
}

/** The host in a URL; undefined for anything else. */
export function parsedName(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).hostname : undefined;
}

/**
 * The address in the last entry of an `X-Forwarded-For`, which the proxy in front adds; earlier ones are the client's
 * own claim. Some proxies add the port, which differs for each connection, and IPv6 has several spellings.
 */
export function lastForwarded(header: string): string {
  const entry = header.slice(header.lastIndexOf(',') + 1).trim();
  const isBare = entry.split(':').length > 2 && !entry.startsWith('[');
  const name = parsedName(`http://${isBare ? `[${entry}]` : entry}`) ?? entry;
  return name.startsWith('[') ? name.slice(1, -1) : name;
}

/** The headers of a request of `node:http`, and whether it came from this machine. */
export function headOf({ headers, socket }: IncomingMessage): Pick<Inbound, 'header' | 'onLoopback'> {
  return {
    header: (name) => {
      const value = headers[name];
      return Array.isArray(value) ? value.join(', ') : value;
    },
    onLoopback: socket.localAddress !== undefined && isLoopback(socket.localAddress),
  };
}
