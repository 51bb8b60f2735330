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
  const listeners = new Map<string, (message: string) => void>();
  return {
    async listen(name, hear) {
      listeners.set(name, hear);
      return async () => {
        if (listeners.get(name) === hear) listeners.delete(name);
      };
    },
    async send(name, message) {
      const hear = listeners.get(name);
      if (hear === undefined) return false;
      setImmediate(hear, message);
      return true;
    },
    async close() {
      listeners.clear();
    },
  };
}
