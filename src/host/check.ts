/**
 * Checks a factory at start, before a client meets its fault: it must return a server, a new one each time, whose SDK
 * can be served on every enabled revision.
 */
import { AwaitError } from '../base/values.ts';
import { enterEra, hasEras } from './era.ts';
import { contextOf, type FactoryContext, type HostFactory, type Made, make } from './host.ts';
import { lowLevelOf } from './protocol.ts';
import { NOBODY } from './spoken.ts';

/**
 * @param revisions with their eras; one server is made for each era
 * @throws AwaitError `bad-option` for a fault that every client would meet. An exception of the factory itself is
 * ignored: there is no client yet, and the factory may need one
 */
export async function checkFactory(
  factory: HostFactory,
  revisions: readonly Pick<FactoryContext, 'era' | 'revision'>[],
): Promise<void> {
  for (const { era, revision } of revisions) {
    let made: Made;
    try {
      made = await make(factory, contextOf({ era, revision, client: NOBODY }));
    } catch (error) {
      if (error instanceof AwaitError && error.code === 'bad-option') throw error;
      return;
    }
    try {
      const server = lowLevelOf(made.server);
      if (era === 'modern' && server !== undefined && hasEras(server)) enterEra(server, revision, NOBODY);
    } finally {
      // The server made for this check is cleaned up; a failure of its cleanup is ignored.
      void Promise.resolve()
        .then(() => made.cleanup?.())
        .catch(() => {});
    }
  }
}
