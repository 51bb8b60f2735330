/** What runtime this is, where that changes what may be kept between two requests. */

/**
 * Whether what one request made is unusable in the next: on Cloudflare Workers a timer, a stream or a pending
 * promise belongs to the request that made it, and nothing of the kind may be made while the module loads.
 */
export function isPerRequest(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers';
}
