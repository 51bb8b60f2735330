/** The one limiter used here, by its own file: the package's index imports `cluster`, which Workers lack. */
declare module 'rate-limiter-flexible/lib/RateLimiterMemory.js' {
  import type { RateLimiterMemory } from 'rate-limiter-flexible';

  const limiter: typeof RateLimiterMemory;
  export default limiter;
}
