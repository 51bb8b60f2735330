/**
 * Looks at what a factory makes before the first client finds out: whether it is a server, a new one each
 * time, and one whose SDK can be served on every revision that is switched on.
 */
import { AwaitError } from '../base/error.ts';
import { enterEra, hasEras } from './era.ts';
import { contextOf, type FactoryContext, type HostFactory, type Made, make } from './host.ts';
import { lowLevelOf } from './protocol.ts';
import { NOBODY } from './spoken.ts';

/**
 * @param revisions with their eras, of which each is made a server for
 * @throws AwaitError `bad-option` for what would fail for every client. What the factory itself throws is not
 *   judged: there is no client yet, and it may want one
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
      // What it opened for this is its own to close, and its failure nobody's.
      void Promise.resolve()
        .then(() => made.cleanup?.())
        .catch(() => {});
    }
  }
}
