/** Calls per second of one tool that asks once, on 2026-07-28. */
import { parseArgs } from 'node:util';
import { interleave, positive } from '../interleaved.mjs';
import { load } from './client.mjs';

const REFERENCE = 'hand-written';
const VARIANTS = [
  REFERENCE,
  'parked',
  'parked-shared',
  'parked-process',
  'here',
  'here-postgres',
  'here-sqlite',
  'replayed',
  'replayed-shared',
  'elsewhere',
  'floor',
];
const CONCURRENCIES = [8, 1];

export async function main(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '7' },
      seconds: { type: 'string', default: '1' },
      variants: { type: 'string', default: VARIANTS.join() },
      profile: { type: 'string' },
    },
  });
  const measured = await interleave({
    script: new URL('./server.mjs', import.meta.url),
    variants: values.variants.split(','),
    concurrencies: CONCURRENCIES,
    rounds: positive('rounds', values.rounds),
    seconds: positive('seconds', values.seconds),
    profile: values.profile,
    load,
  });
  console.log(`ratio of medians to ${REFERENCE}`);
  for (const concurrency of CONCURRENCIES) print(measured, concurrency);
}

function print(measured, concurrency) {
  const reference = measured.get(REFERENCE)?.get(concurrency).rate;
  console.log(
    `\nconcurrency ${concurrency}`.padEnd(17),
    'calls/s'.padStart(9),
    'ratio'.padStart(7),
    ' cpu µs/call',
  );
  for (const [name, figures] of measured) {
    const { rate, cpu } = figures.get(concurrency);
    const ratio = reference === undefined ? '-' : (rate / reference).toFixed(2);
    console.log(name.padEnd(16), rate.toFixed(0).padStart(9), ratio.padStart(7), cpu.toFixed(0).padStart(12));
  }
}
