/** How long a statement of several operations may take, in milliseconds. A client of Redis waits for ever for one that is down. */
export const PATIENCE = 5_000;

/**
 * @param wait milliseconds
 * @throws Error when the store does not answer within `wait`
 */
export function inTime<T>(operation: Promise<T>, wait = PATIENCE): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${wait} ms`)), wait);
    operation.then(
      (result) => {
        clearTimeout(timer);
        resolve(result);
      },
      (error: unknown) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
