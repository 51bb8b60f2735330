/** Packages that only some users need. */
import { AwaitError } from './error.ts';

/**
 * @param use who needs the package, for the error: `this store needs the package`
 * @throws AwaitError `bad-option` where it cannot be imported
 */
export async function importPeer<T>(use: string, name: string, importing: () => Promise<T>): Promise<T> {
  try {
    return await importing();
  } catch (error) {
    throw new AwaitError('bad-option', `${use} ${name}: npm install ${name}`, error);
  }
}
