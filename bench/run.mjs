// Runs the benchmark that is named, or all that are compared: `npm run bench -- [calls | round-trip | asks | suspended | connected | stream] [options]`
const BENCHMARKS = {
  calls: () => import('./calls/main.mjs'),
  'round-trip': () => import('./round-trip/main.mjs'),
  asks: () => import('./asks.mjs'),
  suspended: () => import('./suspended.mjs'),
  connected: () => import('./connected.mjs'),
  stream: () => import('./stream.mjs'),
};
const COMPARED = ['calls', 'round-trip', 'asks', 'suspended', 'connected'];

const [name, ...args] = process.argv.slice(2);
if (name !== undefined && !Object.hasOwn(BENCHMARKS, name)) {
  console.error(`usage: npm run bench -- [${Object.keys(BENCHMARKS).join(' | ')}] [options]`);
  process.exit(2);
}
for (const one of name === undefined ? COMPARED : [name]) {
  console.log(`\n# ${one}`);
  const { main } = await BENCHMARKS[one]();
  await main(args);
}
