/** How long the store may take, in milliseconds. A client of Redis waits for ever for one that is down. */
export const PATIENCE = 5_000;

/** @throws Error when the store does not answer within `PATIENCE` */
export function inTime<T>(operation: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${PATIENCE} ms`)), PATIENCE);
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
