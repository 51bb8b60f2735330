/** Modules that are not always there: packages that only some users need, and users' own. */
import { optionError } from './values.ts';

/** @throws AwaitError `bad-option` where a package cannot be imported: how to install it */
export async function importPeer<T>(name: string, importing: () => Promise<T>): Promise<T> {
  try {
    return await importing();
  } catch (error) {
    throw optionError(`this needs the package ${name}: npm install ${name}`, error);
  }
}

/** A module by a name that is known at run time alone: a package's, or a URL. */
export const importNamed = (name: string): Promise<unknown> => import(name);
