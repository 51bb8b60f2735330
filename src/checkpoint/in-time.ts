/** How long a statement of several operations may take, in milliseconds. A client of Redis waits for ever for one that is down. */
export const PATIENCE = 5_000;

/**
 * @param wait milliseconds
 * @throws Error when there is no answer within `wait`
 */
export function inTime<T>(operation: Promise<T>, wait = PATIENCE): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${wait} ms`)), wait);
    operation.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
