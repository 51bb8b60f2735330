// Runs the benchmark that is named: `npm run bench -- round-trip [--rounds n] [--seconds n] …`
const BENCHMARKS = {
  'round-trip': () => import('./round-trip/main.mjs'),
  stream: () => import('./stream.mjs'),
};

const [name, ...args] = process.argv.slice(2);
if (name === undefined || !Object.hasOwn(BENCHMARKS, name)) {
  console.error(`usage: npm run bench -- <${Object.keys(BENCHMARKS).join(' | ')}> [options]`);
  process.exit(2);
}
const { main } = await BENCHMARKS[name]();
await main(args);
