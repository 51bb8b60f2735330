/** `mcp-await/testing/vitest`: importing it adds `toEqualOnEveryRevision` and `toSurviveRestarts` to vitest's `expect`. */
import { expect } from 'vitest';
import type { HostFactory } from '../host/host.ts';
import type { CompareOptions, Comparison } from './compare.ts';
import { everyRevision, type RobustOptions, type Scenario, survivesRestarts } from './index.ts';
import { failureOf } from './table.ts';

expect.extend({
  async toEqualOnEveryRevision(received: HostFactory, scenario: Scenario, options: CompareOptions = {}) {
    const unexpected = 'expected the server to differ between revisions, and it does not';
    return verdictOf(await everyRevision(received, scenario, options), unexpected);
  },
  async toSurviveRestarts(received: HostFactory, scenario: Scenario, options: RobustOptions = {}) {
    const unexpected = 'expected a restart to change what the server does, and none does';
    return verdictOf(await survivesRestarts(received, scenario, options), unexpected);
  },
});

function verdictOf(comparison: Comparison, unexpected: string) {
  const { differences, problems } = comparison;
  const pass = differences.length === 0 && problems.length === 0;
  // Only a negated expectation that fails has passed.
  return { pass, message: () => (pass ? unexpected : failureOf(comparison)) };
}

declare module 'vitest' {
  interface Matchers<T> {
    /** Whether a server behaves the same under every revision; the message begins with what differs. */
    toEqualOnEveryRevision(
      scenario: Scenario,
      options?: CompareOptions,
    ): Promise<T extends unknown ? void : never>;
    /**
     * Whether a server does the same where its calls are replayed after each ask, and where its process dies after
     * each entry of the journal (each ask, answer and step), and has no effects outside of steps.
     */
    toSurviveRestarts(scenario: Scenario, options?: RobustOptions): Promise<T extends unknown ? void : never>;
  }
}
