/** Runtimes other than Node (`npm run runtimes`): their binaries are installed in a package of their own. */
import { defineConfig } from 'vitest/config';

export default defineConfig({
  root: new URL('../..', import.meta.url).pathname,
  test: {
    include: ['test/runtimes/*.runtime.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxWorkers: 1,
    server: { deps: { external: [/node_modules/] } },
  },
});
