import { defineConfig } from 'vitest/config';

export default defineConfig(({ mode }) => ({
  test: {
    include: ['test/**/*.test.ts'],
    // `npm run test:all` runs those too.
    exclude: mode === 'all' ? [] : ['test/**/*.long.test.ts'],
    globalSetup: ['test/setup.ts'],
    // In CI the other half takes most of both cores.
    testTimeout: process.env.CI === undefined ? 30_000 : 120_000,
    hookTimeout: process.env.CI === undefined ? 60_000 : 120_000,
    // Most files wait for processes and leases: two cores serve four.
    maxWorkers: 4,
    // CI runs chaos and simulation beside the tests: one that waits for processes may be starved. Retries are reported.
    retry: process.env.CI === undefined ? 0 : 1,
  },
}));
