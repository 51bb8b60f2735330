/** One process of the contract test: several claimants that race for every position of one journal. */
import process from 'node:process';
import { insertIfAbsent } from '../../src/checkpoint/insert.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';

const [url = '', prefix = '', name = '', claimants = '1', positions = '1'] = process.argv.slice(2);
const store = await openStore(url);
process.stdout.write('ready\n');
await new Promise((resolve) => process.stdin.once('data', resolve));

const won: number[] = [];
await Promise.all(
  Array.from({ length: Number(claimants) }, async (_, claimant) => {
    for (let position = 0; position < Number(positions); position += 1) {
      const value = { by: `${name}.${claimant}`, position };
      if (await insertIfAbsent(store, `${prefix}:${position}`, value, 60_000)) won.push(position);
    }
  }),
);
process.stdout.write(`${JSON.stringify(won)}\n`);
process.exit(0);
