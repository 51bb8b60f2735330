/** `mcp-await/testing/vitest`: importing it adds `toEqualOnEveryRevision` to vitest's `expect`. */
import { expect } from 'vitest';
import type { HostFactory } from '../host/host.ts';
import { type CompareOptions, everyRevision, type Scenario, tableOf } from './index.ts';

expect.extend({
  async toEqualOnEveryRevision(received: HostFactory, scenario: Scenario, options: CompareOptions = {}) {
    const comparison = await everyRevision(received, scenario, options);
    const { differences, problems } = comparison;
    return {
      pass: differences.length === 0 && problems.length === 0,
      message: () =>
        this.isNot
          ? 'expected the server to differ between revisions, and it does not'
          : `expected the server to do the same on every revision:\n\n${tableOf(comparison)}`,
    };
  },
});

declare module 'vitest' {
  interface Matchers<T> {
    /** Whether a server behaves the same under every revision; the message is the table of differences. */
    toEqualOnEveryRevision(
      scenario: Scenario,
      options?: CompareOptions,
    ): Promise<T extends unknown ? void : never>;
  }
}
