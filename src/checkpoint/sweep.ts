/** Deletes expired records, now and then, in every process. */
import { every, type Repeating, systemClock } from '../base/values.ts';
import type { Logger } from '../observe/logger.ts';
import type { KeyvCallStore } from './call-store.ts';

const EVERY = 600_000;

export function startSweeping(store: KeyvCallStore, logger: Logger): Repeating {
  return every(systemClock, EVERY, () => {
    store.sweep().then(
      (deleted) => {
        if (deleted > 0) logger.debug('expired records were deleted', { deleted });
      },
      (error: unknown) =>
        logger.warn('expired records could not be deleted; trying again later', { error: String(error) }),
    );
  });
}
