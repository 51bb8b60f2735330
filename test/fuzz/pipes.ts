/** Fuzzes connections that carry many messages, several at once, and counts what comes of them. */
import { type Random, randomOf } from '../fixtures/random.ts';
import { learn, problemIn } from './pipe-messages.ts';
import type { Known } from './requests.ts';
import type { Heap, Watch } from './watch.ts';

/** Messages between two looks at the memory. */
const LOOK = 20_000;

export interface PipeFuzzOptions {
  readonly messages: number;
  readonly seed: number;
}

export interface PipeFuzzReport {
  /** Messages, and the connections that they came on. */
  readonly sent: number;
  readonly pipes: number;
  readonly replies: number;
  /** How connections ended: `refused 400`, `closed 1003`, `open`. */
  readonly byEnd: ReadonlyMap<string, number>;
  readonly heap: Heap;
  readonly problems: readonly string[];
}

/** What came of one connection. */
export interface Ended {
  readonly end: string;
  readonly replies: readonly string[];
  /** Whether its end is an internal error. */
  readonly isProblem?: boolean;
}

interface Fuzzing extends PipeFuzzOptions {
  readonly known: Known;
  readonly watch: Watch;
  /** Connections at once. */
  readonly atOnce: number;
  /**
   * Opens a connection, sends messages on it and ends it.
   * @param sends is told how many messages it sends, before they are sent
   */
  readonly connect: (random: Random, sends: (messages: number) => void) => Promise<Ended>;
  /** Closes what the connections shared. */
  readonly close?: () => Promise<void>;
}

export async function fuzzPipes(fuzzing: Fuzzing): Promise<PipeFuzzReport> {
  const { messages, seed, known, watch, atOnce, connect, close } = fuzzing;
  const byEnd = new Map<string, number>();
  let [sent, pipes, count, looked] = [0, 0, 0, 0];
  const one = async (): Promise<void> => {
    pipes += 1;
    const nth = pipes;
    // Of its own, so that one connection does not depend on how the others were interleaved.
    const { end, replies, isProblem } = await connect(randomOf(seed + nth), (more) => {
      sent += more;
    });
    byEnd.set(end, (byEnd.get(end) ?? 0) + 1);
    if (isProblem) watch.problems.push(`connection ${nth}: ${end}`);
    count += replies.length;
    for (const text of replies) {
      const problem = problemIn(text);
      if (problem !== undefined) watch.problems.push(`connection ${nth}: ${problem}`);
      learn(known, text);
    }
  };
  const work = async (): Promise<void> => {
    while (sent < messages && !watch.failed) {
      await one();
      if (sent - looked < LOOK) continue;
      looked = sent;
      watch.measure();
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  await close?.();
  await watch.stop();
  return { sent, pipes, replies: count, byEnd, heap: watch.heap, problems: watch.problems };
}
