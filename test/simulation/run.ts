/**
 * npm run simulate -- --runs 100000 [--seed N] [--workers N]
 *
 * Plays random scenarios; on a violation it prints the seed, and the smallest scenario that shows it.
 */
import { fork } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { type AnyScenario, anyScenarios, playAny } from './live.ts';
import { pageScenarios } from './page.ts';
import { taskScenarios } from './tasks.ts';

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000' },
    seed: { type: 'string' },
    workers: { type: 'string', default: '1' },
    /** Says what broke and does not look for a smaller scenario. */
    quick: { type: 'boolean', default: false },
    /** Plays those first that once showed a defect. */
    kept: { type: 'boolean', default: false },
    /** Plays calls alone whose person answers on the page. */
    page: { type: 'boolean', default: false },
  },
});
const runs = Number(values.runs);
const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed);
const workers = Number(values.workers);

async function playKept(): Promise<boolean> {
  const text = readFileSync(new URL('./found.json', import.meta.url), 'utf8');
  for (const { what, scenario } of JSON.parse(text) as { what: string; scenario: AnyScenario }[]) {
    const { violations } = await playAny(scenario);
    if (violations.length === 0) continue;
    process.stdout.write(`violation where ${what}: ${violations.join('; ')}\n`);
    return false;
  }
  return true;
}

async function simulate(): Promise<boolean> {
  if (values.kept && !(await playKept())) return false;
  if (values.page) return playRandom(pageScenarios, runs);
  const few = Math.ceil(runs / 4);
  return (
    (await playRandom(anyScenarios, runs)) &&
    (await playRandom(taskScenarios, few)) &&
    playRandom(pageScenarios, few)
  );
}

async function playRandom(of: fc.Arbitrary<AnyScenario>, numRuns: number): Promise<boolean> {
  let repeated = 0;
  const property = fc.asyncProperty(of, async (scenario) => {
    const report = await playAny(scenario);
    repeated += report.repeated;
    if (report.violations.length > 0) throw new Error(report.violations.join('\n'));
  });
  const details = await fc.check(property, { numRuns, seed, endOnFailure: values.quick });
  process.stdout.write(
    `seed ${seed}: ${details.numRuns} runs, ${repeated} effects begun again after a fault\n`,
  );
  if (!details.failed) return true;
  const error = details.errorInstance;
  process.stdout.write(
    `violation after ${details.numShrinks} shrinks: ${error instanceof Error ? error.message : String(error)}\n${JSON.stringify(details.counterexample?.[0])}\n`,
  );
  return false;
}

/** Each worker has a seed of its own. */
async function inWorkers(): Promise<boolean> {
  const script = new URL(import.meta.url).pathname;
  const share = Math.ceil(runs / workers);
  const ended = Array.from({ length: workers }, async (_, nth) => {
    const args = [`--runs=${share}`, `--seed=${(seed + nth) | 0}`];
    if (values.quick) args.push('--quick');
    if (values.page) args.push('--page');
    const [code] = (await once(fork(script, args), 'exit')) as [number];
    return code === 0;
  });
  return (await Promise.all(ended)).every(Boolean);
}

const passed = workers > 1 ? await inWorkers() : await simulate();
if (workers === 1) process.stdout.write(passed ? 'no violation\n' : 'it failed\n');
process.exit(passed ? 0 : 1);
