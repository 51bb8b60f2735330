/** Modules that are not always there: packages that only some users need, and users' own. */
import { optionError } from './values.ts';

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
    throw optionError(need(name), error);
  }
}

/** A module by a name that is known at run time alone: a package's, or a URL. */
export const importNamed = (name: string): Promise<unknown> => import(name);
