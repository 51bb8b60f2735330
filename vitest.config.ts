import { defineConfig } from 'vitest/config';

/** They replace what a process has once, such as `fetch`: each file of these needs a process of its own. */
const APART = ['test/observe/**/*.test.ts', 'test/record/**/*.test.ts', 'test/**/*.long.test.ts'];

export default defineConfig(({ mode }) => {
  const isShort = mode !== 'all';
  // `npm run test:all` runs those too.
  // For each project: it reads this file again, in another mode.
  const env = { MCP_AWAIT_SHORT_TESTS: isShort ? '1' : '' };
  const long = isShort ? ['test/**/*.long.test.ts'] : [];
  return {
    test: {
      globalSetup: ['test/setup.ts'],
      // In CI the other half takes most of both cores.
      testTimeout: process.env.CI === undefined ? 60_000 : 120_000,
      hookTimeout: process.env.CI === undefined ? 60_000 : 120_000,
      // A condition that is waited for comes late where others take the cores; the second of the default is a time.
      expect: { poll: { timeout: 20_000 } },
      // Most files wait for processes and leases: two cores serve twelve, and fewer beside CI's other half.
      maxWorkers: process.env.CI === undefined ? 12 : 5,
      // CI runs chaos and simulation beside the tests: one that waits for processes may be starved. Retries are reported.
      retry: process.env.CI === undefined ? 0 : 1,
      projects: [
        // Loading the SDKs anew for each file would take a third of the time.
        {
          extends: true,
          test: { name: 'shared', env, include: ['test/**/*.test.ts'], exclude: APART, isolate: false },
        },
        { extends: true, test: { name: 'apart', env, include: APART, exclude: long } },
      ],
    },
  };
});
