/** A connection without a network: what is pushed is what a client sent. */
import { Duplex } from 'node:stream';
import { setImmediate as breath } from 'node:timers/promises';
import type { Random } from '../fixtures/random.ts';

/** How long a reply is read that does not end, in turns of the event loop. */
const TURNS = 40;
/** Bytes of a reply that are kept. */
const KEPT = 300_000;

export class FuzzSocket extends Duplex {
  isOver = false;
  readonly #chunks: Buffer[] = [];
  #size = 0;

  constructor() {
    super();
    this.on('error', () => {});
  }

  get received(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  /** Sends bytes, whole or in pieces. */
  async send(bytes: Buffer, random: Random): Promise<void> {
    for (let at = 0; at < bytes.length && !this.isOver; ) {
      const size = random.int(4) === 0 ? 1 + random.int(bytes.length) : bytes.length;
      this.push(bytes.subarray(at, at + size));
      at += size;
      if (at < bytes.length) await breath();
    }
  }

  /** Reads as much as comes soon; then its client ends its side, or breaks off. */
  async finish(random: Random): Promise<void> {
    for (let turn = 0; turn < TURNS && !this.isOver; turn += 1) await breath();
    if (!this.isOver && random.int(2) === 0) this.push(null);
    this.destroy();
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    if (this.#size < KEPT) this.#chunks.push(chunk);
    this.#size += chunk.length;
    done();
  }

  override _final(done: () => void): void {
    this.isOver = true;
    done();
  }

  override _destroy(_error: Error | null, done: (error: Error | null) => void): void {
    this.isOver = true;
    done(null);
  }
}
