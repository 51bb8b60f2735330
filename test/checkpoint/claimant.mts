/**
 * One process of the contract test: several claimants that race for every position of one journal. Each line of
 * stdin is a batch, `from to`, so that processes start on each together; `read` asks who won, of the store.
 */
import process from 'node:process';
import { createInterface } from 'node:readline';
import { insertIfAbsent, read } from '../../src/checkpoint/insert.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';

const [url = '', prefix = '', name = '', claimants = '1', positions = '1'] = process.argv.slice(2);
const store = await openStore(url);
const say = (said: unknown): void => void process.stdout.write(`${JSON.stringify(said)}\n`);

async function race(from: number, to: number): Promise<number[]> {
  const won: number[] = [];
  await Promise.all(
    Array.from({ length: Number(claimants) }, async (_, claimant) => {
      for (let position = from; position < to; position += 1) {
        const value = `${name}.${claimant}`;
        if (await insertIfAbsent(store, `${prefix}:${position}`, value, 600_000)) won.push(position);
      }
    }),
  );
  return won;
}

async function winners(): Promise<unknown[]> {
  const found: unknown[] = [];
  for (let position = 0; position < Number(positions); position += 1) {
    found.push(await read(store, `${prefix}:${position}`));
  }
  return found;
}

say('ready');
for await (const line of createInterface(process.stdin)) {
  const [from, to] = line.split(' ').map(Number);
  say(line === 'read' ? await winners() : await race(from ?? 0, to ?? 0));
}
process.exit(0);
