/** Some random scenarios, those that once showed a defect, and the proof that the simulator sees defects. */
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SHORT, some } from '../short.ts';
import { type AnyScenario, anyScenarios, playAny } from './live.ts';
import { MUTANTS, type Mutant } from './mutants.ts';
import { pageScenarios } from './page.ts';
import { taskScenarios } from './tasks.ts';

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = join(HERE, '../..');

describe('a simulated cluster', () => {
  it('keeps every promise in random scenarios', async () => {
    const property = fc.asyncProperty(anyScenarios, async (scenario) => {
      expect((await playAny(scenario)).violations).toEqual([]);
    });
    await fc.assert(property, { numRuns: SHORT ? 100 : 1_000 });
  });

  it('keeps them where a person answers on the page', async () => {
    const property = fc.asyncProperty(pageScenarios, async (scenario) => {
      expect((await playAny(scenario)).violations).toEqual([]);
    });
    await fc.assert(property, { numRuns: SHORT ? 100 : 1_000 });
  });

  it('keeps them where the call is a task', async () => {
    const property = fc.asyncProperty(taskScenarios, async (scenario) => {
      expect((await playAny(scenario)).violations).toEqual([]);
    });
    await fc.assert(property, { numRuns: SHORT ? 100 : 1_000 });
  });

  it('plays a scenario the same way each time', async () => {
    const seeded = { numRuns: 30, seed: 4 };
    const all = [anyScenarios, taskScenarios, pageScenarios] as fc.Arbitrary<AnyScenario>[];
    for (const scenario of all.flatMap((scenarios) => fc.sample(scenarios, seeded))) {
      expect(await playAny(scenario)).toEqual(await playAny(scenario));
    }
  });

  const found = JSON.parse(readFileSync(join(HERE, 'found.json'), 'utf8')) as {
    what: string;
    scenario: AnyScenario;
  }[];
  it.each(found)('keeps them where it once did not: $what', async ({ scenario }) => {
    expect((await playAny(scenario)).violations).toEqual([]);
  });
});

it.each(MUTANTS)('$name: its line is in the engine once', ({ file, from }) => {
  expect(readFileSync(join(ROOT, file), 'utf8').split(from)).toHaveLength(2);
});

/** Each in a process of its own, several at once. */
describe.concurrent('the simulator sees it when', () => {
  let folder = '';
  beforeAll(() => {
    const cache = join(ROOT, '.cache');
    mkdirSync(cache, { recursive: true });
    folder = mkdtempSync(join(cache, 'mutants-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each([...some(MUTANTS.filter(({ page }) => !page)), ...some(MUTANTS.filter(({ page }) => page))])(
    '$name',
    async (mutant) => {
      const { code, output } = await simulate(broken(folder, mutant), [
        ...(mutant.rare ? ['--kept'] : []),
        ...(mutant.page ? ['--page'] : []),
      ]);
      expect(output).toMatch(/^violation/m);
      expect(code).toBe(1);
    },
  );

  it.skipIf(SHORT)('nothing is broken, and says so', async () => {
    const { code, output } = await simulate(copy(join(folder, 'sound')));
    expect(output).toMatch(/^no violation/m);
    expect(code).toBe(0);
  });
});

const COPIED = [
  'src/ask',
  'src/base',
  'src/call',
  'src/checkpoint/page-records.ts',
  'src/log',
  'src/stream',
  'test/simulation',
  'package.json',
];

function copy(to: string): string {
  for (const path of COPIED) {
    cpSync(join(ROOT, path), join(to, path), { recursive: true });
  }
  return to;
}

/** A copy of the engine in which one thing is not as it should be. */
function broken(folder: string, { name, file, from, to }: Mutant): string {
  const place = copy(join(folder, name.replaceAll(/\W+/g, '-')));
  const path = join(place, file);
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace(from, () => to),
  );
  return place;
}

async function simulate(
  place: string,
  extra: readonly string[] = [],
): Promise<{ code: number | null; output: string }> {
  const script = join(place, 'test/simulation/run.ts');
  const args = ['--import', 'tsx', script, '--runs', '1000', '--seed', '1', '--quick', ...extra];
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = new Promise<number | null>((resolve) => child.once('exit', resolve));
  const output = await text(child.stdout);
  return { code: await exit, output };
}
