/** Insertion races: 4 processes with 8 claimants each for every position of a journal (issue, insertion races). */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import Keyv from 'keyv';
import { describe, expect, it } from 'vitest';
import { insertIfAbsent, read, remove } from '../../src/checkpoint/insert.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { STORES } from '../e2e/services.ts';
import { SHORT } from '../short.ts';

const PROCESSES = ['a', 'b', 'c', 'd'];
const CLAIMANTS = 8;
const POSITIONS = 300;
/** Positions after which processes wait for one another, so that none runs ahead of the race. */
const BATCH = 50;
const ALL = Array.from({ length: POSITIONS }, (_, position) => position);
const claimant = new URL('./claimant.mts', import.meta.url).pathname;

interface Racer {
  readonly name: string;
  readonly child: ChildProcess;
  ask(line: string): Promise<unknown>;
}

async function startRacer(name: string, url: string, prefix: string): Promise<Racer> {
  const args = ['--import', 'tsx', claimant, url, prefix, name, String(CLAIMANTS), String(POSITIONS)];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout);
  const gone = once(child, 'exit').then(() => Promise.reject(new Error(`racer ${name} is gone`)));
  gone.catch(() => undefined);
  await Promise.race([once(lines, 'line'), gone]);
  const ask = async (line: string): Promise<unknown> => {
    const answer = once(lines, 'line');
    child.stdin.write(`${line}\n`);
    const [said] = await Promise.race([answer, gone]);
    return JSON.parse(String(said));
  };
  return { name, child, ask };
}

for (const { name, url: urlOf, down } of STORES) {
  describe.skipIf(SHORT || down)(`a race on ${name}`, () => {
    it('has one winner for each position, whom every process reads', async () => {
      const url = urlOf();
      const prefix = `race:${randomUUID()}`;
      const racers = await Promise.all(PROCESSES.map((process_) => startRacer(process_, url, prefix)));
      const won = new Map<number, string[]>(ALL.map((position) => [position, []]));
      for (let from = 0; from < POSITIONS; from += BATCH) {
        const batch = racers.map(async (racer) => {
          const positions = (await racer.ask(`${from} ${from + BATCH}`)) as number[];
          for (const position of positions) won.get(position)?.push(racer.name);
        });
        await Promise.all(batch);
      }
      const read_ = (await Promise.all(racers.map((racer) => racer.ask('read')))) as string[][];
      for (const { child } of racers) child.stdin?.end();
      expect([...won.values()].filter((winners) => winners.length !== 1)).toEqual([]);
      const winners = read_[0]?.map((value) => value.split('.', 1)[0]);
      expect(winners).toEqual(ALL.map((position) => won.get(position)?.[0]));
      for (const others of read_) expect(others).toEqual(read_[0]);
      // A race that one runs alone proves nothing.
      expect(new Set(winners).size).toBeGreaterThan(1);
      const keyv = await openStore(url);
      await remove(
        keyv,
        ALL.map((position) => `${prefix}:${position}`),
      );
      await keyv.disconnect();
    });
  });
}

describe('a race in memory', () => {
  it('has one winner for each position, of 32 claimants in one process', async () => {
    const keyv = new Keyv();
    const won: number[] = [];
    await Promise.all(
      Array.from({ length: PROCESSES.length * CLAIMANTS }, async (_, name) => {
        for (const position of ALL) {
          if (!(await insertIfAbsent(keyv, `race:${position}`, name, 60_000))) continue;
          won.push(position);
          expect(await read(keyv, `race:${position}`)).toBe(name);
        }
      }),
    );
    expect(won.sort((one, other) => one - other)).toEqual(ALL);
  });
});
