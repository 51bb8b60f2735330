import { defineConfig } from 'vitest/config';

/** They replace what a process has once, such as `fetch`: each file of these needs a process of its own. */
const APART = [
  'test/observe/**/*.test.ts',
  'test/record/**/*.test.ts',
  // Its clock is the process's, which timers of the files before would move.
  'test/client/retry.test.ts',
  'test/**/*.long.test.ts',
];

/** They start many processes, wait for leases or make load: more than half of the time of all that have no `.long`. */
const LATER = [
  ...['by-person', 'deceiving', 'killed', 'proxy'].map((name) => `ask/${name}`),
  'browser/*',
  'cli/ask',
  ...['hostile-socket', 'round-trips', 'task-failures'].map((name) => `client/${name}`),
  ...['guards', 'raw'].map((name) => `differential/${name}`),
  'fuzz/fuzz',
  'observe/unjournaled',
  'record/sdk',
  'relay/messages',
  'stream/retention',
  ...['described', 'log-reader', 'other-service', 'sockets', 'stalling', 'store-reader', 'upstream'].map(
    (name) => `security/${name}`,
  ),
  ...[
    ...['advice', 'any-process', 'ask-progress', 'bursts', 'calls', 'contexts', 'ended-sessions'],
    ...[
      'every-way-to-ask',
      'hostile',
      'hostile-input',
      'http-sse',
      'lasting',
      'leaving',
      'mrtr',
      'mrtr-tasks',
    ],
    ...[
      'multi-turn',
      'options',
      'proxy',
      'proxy-authorization',
      'proxy-children',
      'proxy-doors',
      'proxy-relay',
      'reference-server',
    ],
    ...['rotation', 'session-state', 'stdio-reading', 'stdio-restart', 'store-at-start', 'stored-bytes'],
    ...['tasks-extension', 'tasks-session', 'upstream', 'workspace-anywhere', 'workspace-mixing'],
  ].map((name) => `e2e/${name}`),
].map((name) => `test/${name}.test.ts`);

export default defineConfig(({ mode }) => {
  const isShort = mode !== 'all';
  // For each project: it reads this file again, in another mode.
  const env = { MCP_AWAIT_SHORT_TESTS: isShort ? '1' : '' };
  // `npm run test:all` runs those too.
  const long = isShort ? ['test/**/*.long.test.ts', ...LATER] : [];
  // A folder's node_modules may link this package, with these files once more.
  const skipped = ['**/node_modules/**', ...long];
  return {
    test: {
      globalSetup: ['test/setup.ts'],
      // Tests wait for conditions, which come late where others take the cores: these times end one that hangs.
      testTimeout: 300_000,
      hookTimeout: 300_000,
      expect: { poll: { timeout: 60_000 } },
      // Most files wait for processes and leases: two cores serve eight, and fewer beside CI's other half.
      maxWorkers: process.env.CI === undefined ? 8 : 5,
      // CI runs chaos and simulation beside the tests: one that waits for processes may be starved. Retries are reported.
      retry: process.env.CI === undefined ? 0 : 2,
      projects: [
        // Loading the SDKs anew for each file would take a third of the time.
        {
          extends: true,
          test: {
            name: 'shared',
            env,
            include: ['test/**/*.test.ts'],
            exclude: [...APART, ...skipped],
            isolate: false,
          },
        },
        { extends: true, test: { name: 'apart', env, include: APART, exclude: skipped } },
      ],
    },
  };
});
