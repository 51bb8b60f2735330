/** Packages that only some users need. */
import { AwaitError } from './error.ts';

/**
 * @param need the message of the error: who needs the package, and how to install it
 * @throws AwaitError `bad-option` where it cannot be imported
 */
export async function importPeer<T>(
  need: (name: string) => string,
  name: string,
  importing: () => Promise<T>,
): Promise<T> {
  try {
    return await importing();
  } catch (error) {
    throw new AwaitError('bad-option', need(name), error);
  }
}
