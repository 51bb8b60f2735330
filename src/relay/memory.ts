/** A relay for handlers of one process: several on several ports, or a test. */
import type { Relay } from '../call/ports.ts';

/**
 * A relay between handlers of one process.
 *
 * @example
 * import { createAwaitHandler, memoryRelay } from 'mcp-await';
 * import buildServer from './server.js';
 *
 * const relay = memoryRelay();
 * const handlers = [1, 2].map(() => createAwaitHandler(buildServer, { relay }));
 */
export function memoryRelay(): Relay {
  const listeners = new Map<string, Set<(message: string) => void>>();
  return {
    async listen(name, hear) {
      const all = listeners.get(name) ?? new Set();
      listeners.set(name, all.add(hear));
      return async () => {
        all.delete(hear);
        if (all.size === 0 && listeners.get(name) === all) listeners.delete(name);
      };
    },
    async send(name, message) {
      const all = listeners.get(name);
      if (all === undefined) return false;
      for (const hear of all) setImmediate(hear, message);
      return true;
    },
    async close() {
      listeners.clear();
    },
  };
}
