/** What each fuzz of whole wires looks at: crashes, rejections nobody handles, and memory. */
import process from 'node:process';
import { setImmediate as breath } from 'node:timers/promises';
import { tuned } from '../../src/call/limits.ts';
import type { AwaitOptions, Logger } from '../../src/index.ts';

export interface Heap {
  /** Bytes in use at the first look, and the most of any. */
  first: number;
  most: number;
}

const silent: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** Options of a handler that is fuzzed: nothing lasts long. */
export const FUZZED: AwaitOptions = {
  tasks: 'optional',
  secrets: ['the secret of the HTTP fuzz: longer than 32 bytes'],
  logger: silent,
  ttl: 5_000,
  warnUnjournaled: false,
  ...tuned({ stalled: 1_000, drain: 50 }),
};

export class Watch {
  readonly problems: string[] = [];
  readonly heap: Heap = { first: 0, most: 0 };
  readonly #onRejection = this.#noting('unhandled rejection');
  readonly #onException = this.#noting('uncaught exception');

  constructor() {
    process.on('unhandledRejection', this.#onRejection);
    process.on('uncaughtException', this.#onException);
  }

  get failed(): boolean {
    return this.problems.length >= 20;
  }

  measure(): void {
    globalThis.gc?.();
    const { heapUsed } = process.memoryUsage();
    if (this.heap.first === 0) this.heap.first = heapUsed;
    this.heap.most = Math.max(this.heap.most, heapUsed);
  }

  async stop(): Promise<void> {
    this.measure();
    await breath();
    process.off('unhandledRejection', this.#onRejection);
    process.off('uncaughtException', this.#onException);
  }

  #noting(what: string): (error: unknown) => void {
    return (error) =>
      void this.problems.push(`${what}: ${error instanceof Error ? error.stack : String(error)}`);
  }
}
