/** Which runtime this is, where that decides what may be kept between two requests. */

/**
 * Whether objects of one request are unusable in the next: on Cloudflare Workers a timer, a stream or a pending promise
 * belongs to the request that made it, and none may be made while the module loads.
 */
export function isPerRequest(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers';
}
