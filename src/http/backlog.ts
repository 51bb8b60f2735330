/**
 * Replies that wait for clients which read slowly, or not at all. One that takes nothing for `stalled` is broken off;
 * where all of them together hold more than `most` bytes, the one that has waited longest is: forty unread results of
 * 4 MB held 415 MB. Whatever writes a body of any length writes it through here.
 */
import type { Clock, Timer } from '../base/clock.ts';
import type { Reply, Writer } from './exchange.ts';

export interface BacklogOptions {
  readonly clock: Clock;
  /** How long a client may read nothing while bytes wait for it, in milliseconds. */
  readonly stalled: number;
  /** Bytes that may wait for all clients together. */
  readonly most: number;
  /** Called when a connection is broken off by this process. */
  readonly broken?: () => void;
}

/** A writer that limits how long its client is waited for. */
export interface GuardedWriter extends Writer {
  /** Whether something waits for its client. */
  readonly behind: boolean;
  /** Breaks the connection off, and has it counted. */
  breakOff(): void;
}

/** Shorter bodies are written at once, and their rest waits in the socket. In characters. */
const SHORT = 65_536;

export class Backlog {
  readonly #options: BacklogOptions;
  /** Bytes that wait for each client, the longest wait first. */
  readonly #waiting = new Map<Guard, number>();
  #bytes = 0;

  constructor(options: BacklogOptions) {
    this.#options = options;
  }

  /** Bytes that wait for all clients. */
  get bytes(): number {
    return this.#bytes;
  }

  guard(writer: Writer): GuardedWriter {
    return new Guard(writer, this.#options, (guard, unsent) => this.#note(guard, unsent));
  }

  /** A reply whose long body waits for a client that reads slowly. */
  bounded(reply: Reply): Reply {
    const { body, headers } = reply;
    if (typeof body !== 'string' || body.length < SHORT) return reply;
    return {
      ...reply,
      headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) },
      body: (writer) => {
        const guarded = this.guard(writer);
        guarded.write(body);
        guarded.end();
      },
    };
  }

  #note(guard: Guard, unsent: number): void {
    this.#bytes += unsent - (this.#waiting.get(guard) ?? 0);
    if (unsent > 0) this.#waiting.set(guard, unsent);
    else this.#waiting.delete(guard);
    for (const longest of this.#waiting.keys()) {
      if (this.#bytes <= this.#options.most) return;
      longest.breakOff();
    }
  }
}

class Guard implements GuardedWriter {
  readonly #writer: Writer;
  readonly #options: BacklogOptions;
  readonly #note: (guard: Guard, unsent: number) => void;
  readonly #drained: (() => void)[] = [];
  readonly #closed: (() => void)[] = [];
  #patience: Timer | undefined;
  #isBehind = false;
  #isClosed = false;

  constructor(writer: Writer, options: BacklogOptions, note: (guard: Guard, unsent: number) => void) {
    this.#writer = writer;
    this.#options = options;
    this.#note = note;
    writer.onDrain(() => {
      this.#caughtUp();
      for (const fn of this.#drained) fn();
    });
    writer.onClose(() => {
      this.#isClosed = true;
      this.#caughtUp();
      for (const fn of this.#closed.splice(0)) fn();
    });
  }

  get behind(): boolean {
    return this.#isBehind;
  }

  get unsent(): number {
    return this.#writer.unsent;
  }

  write(text: string): boolean {
    const keepsUp = this.#writer.write(text);
    if (!keepsUp) this.#wait();
    return keepsUp;
  }

  end(): void {
    // The rest still waits for a client that may never read it.
    if (this.#writer.unsent > 0) this.#wait();
    this.#writer.end();
  }

  destroy(): void {
    this.#writer.destroy();
  }

  breakOff(): void {
    this.#caughtUp();
    this.#options.broken?.();
    this.#writer.destroy();
  }

  onDrain(fn: () => void): void {
    this.#drained.push(fn);
  }

  onClose(fn: () => void): void {
    if (this.#isClosed) fn();
    else this.#closed.push(fn);
  }

  #wait(): void {
    if (this.#isClosed) return;
    this.#isBehind = true;
    if (this.#writer.limitsItself) return;
    if (this.#patience === undefined) this.#watch(this.#writer.unsent);
    this.#note(this, this.#writer.unsent);
  }

  /** A client that is only slow takes some of it. */
  #watch(before: number): void {
    this.#patience = this.#options.clock
      .after(this.#options.stalled, () => {
        const { unsent } = this.#writer;
        if (unsent >= before) return this.breakOff();
        this.#watch(unsent);
        this.#note(this, unsent);
      })
      .unref();
  }

  #caughtUp(): void {
    this.#isBehind = false;
    this.#patience?.cancel();
    this.#patience = undefined;
    this.#note(this, 0);
  }
}
