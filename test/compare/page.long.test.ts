/** The snippets of docs/testing.md are run as they stand, against the booking example. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';

const ROOT = new URL('../../', import.meta.url).pathname;
const PAGE = readFileSync(`${ROOT}docs/testing.md`, 'utf8');
const FOLDER = `${ROOT}test/compare/snippets-${process.pid}`;

afterAll(() => rmSync(FOLDER, { recursive: true, force: true }));

it('every snippet of the page passes, and the first is a test file of ten lines', () => {
  const snippets = [...PAGE.matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1] ?? '');
  expect(snippets.length).toBeGreaterThan(3);
  expect(snippets[0]?.trimEnd().split('\n').length).toBeLessThanOrEqual(10);
  mkdirSync(FOLDER, { recursive: true });
  for (const [index, snippet] of snippets.entries()) {
    const code = snippet.replaceAll("'./server.js'", "'../../../examples/booking/with-steps.ts'");
    writeFileSync(`${FOLDER}/snippet-${index}.test.ts`, code.includes("from 'vitest'") ? code : asTest(code));
  }
  const vitest = spawnSync(
    process.execPath,
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      FOLDER,
      '--maxWorkers=1',
      '--reporter=json',
      '--testTimeout=120000',
    ],
    { cwd: ROOT, encoding: 'utf8', env: { ...process.env, TRANSCRIPT: `${FOLDER}/transcript.json` } },
  );
  const report = JSON.parse(vitest.stdout.slice(vitest.stdout.indexOf('{'))) as Readonly<
    Record<string, unknown>
  >;
  expect(report, JSON.stringify(report).slice(0, 4_000)).toMatchObject({
    success: true,
    numTotalTests: snippets.length,
  });
});

/** A script becomes the body of a test. */
function asTest(code: string): string {
  const imports = code.match(/^import .*$/gm) ?? [];
  const body = code.replaceAll(/^import .*$/gm, '');
  return `${imports.join('\n')}\nimport { it } from 'vitest';\nit('runs', async () => {\n${body}\n});\n`;
}
