/** The origin of a connection, and the name that follows from it. */

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
