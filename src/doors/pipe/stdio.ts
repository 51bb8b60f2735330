/**
 * `mcp-await/stdio`: one client on this process's stdin and stdout; its first message decides the revision. Meanwhile
 * stdout carries the protocol alone: other output of the process goes to stderr.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import type { Readable, Writable } from 'node:stream';
import { type Clock, deferred, nextTurn, systemClock, type Timer } from '../../base/values.ts';
import { limitsOf } from '../../call/limits.ts';
import type { AwaitHandler } from '../../handler/await-handler.ts';
import { type AwaitOptions, createAwaitHandler } from '../../handler/handler.ts';
import type { HostFactory } from '../../host/host.ts';
import { consoleLogger } from '../../observe/logger.ts';
import { Lines } from '../../proxy/lines.ts';
import { MAX_UNSENT } from '../http/exchange.ts';
import { Pipe } from './pipe.ts';

/** How long the remaining output may take when it closes, in milliseconds. */
const LAST_WORDS = 2_000;

/** The options of `createStdio`. */
export interface StdioOptions extends AwaitOptions {
  /** Default: this process's. */
  readonly stdin?: Readable;
  readonly stdout?: Writable;
}

/** A server on stdio. */
export interface StdioServer {
  readonly handler: AwaitHandler;
  /**
   * Resolves when the client has closed its end, or is disconnected, and its running calls are given up. Output that the
   * client does not take keeps the process: end it with `process.exit()`.
   */
  readonly closed: Promise<void>;
  close(): Promise<void>;
}

/**
 * Serves one client over stdio: 2026-07-28 with round trips, and the revisions of 2025 and before with sessions.
 *
 * @throws AwaitError `bad-option`
 *
 * @example
 * import { createStdio } from 'mcp-await/stdio';
 * import buildServer from './server.js';
 *
 * await createStdio(buildServer).closed;
 * process.exit();
 */
export function createStdio(factory: HostFactory, options: StdioOptions = {}): StdioServer {
  const { stdin = process.stdin, stdout = process.stdout, ...rest } = options;
  const handler = createAwaitHandler(factory, rest);
  const release = stdout === process.stdout ? reserveStdout() : undefined;
  const write = release?.write ?? stdout.write.bind(stdout);
  const limits = limitsOf(rest);
  const { promise: closed, resolve: settle } = deferred();
  const outlet = new PipeOutlet({
    clock: systemClock,
    write,
    stalled: limits.stalled,
    most: limits.unreadBytes,
    onStalled: (reason) => {
      (rest.logger ?? consoleLogger).warn('the client on stdio is disconnected: it must read all the time', {
        reason,
      });
      void close();
    },
  });
  const send = (text: string): boolean =>
    !stdout.destroyed && !stdout.writableEnded && outlet.send(`${text}\n`);
  const pipe = new Pipe({
    serve: handler.serve,
    source: { path: '/mcp', headers: { host: 'localhost' }, address: '127.0.0.1', onLoopback: true },
    end: {
      send,
      get unsent() {
        return outlet.unsent;
      },
      onDrain: (fn) => outlet.onDrain(fn),
      destroy: () => void close(),
    },
    resumable: false,
  });
  let isClosing = false;
  const close = async (): Promise<void> => {
    if (isClosing) return closed;
    isClosing = true;
    stdin.pause();
    await pipe.end(true);
    await handler.close();
    await outlet.close(LAST_WORDS);
    release?.undo();
    settle();
    return undefined;
  };
  const source = { pause: () => stdin.pause(), resume: () => void (isClosing || stdin.resume()) };
  // A request may have a long reply: the next one waits until its client has caught up.
  const receive = oneByOne(source, async (line) => {
    await outlet.caughtUp();
    if (line === undefined) void close();
    else if (!isClosing) pipe.receive(line);
  });
  const lines = new Lines(limits.bodyBytes, receive);
  stdin.on('data', (chunk: Buffer | string) => {
    if (lines.push(Buffer.from(chunk)) !== undefined) return;
    const error = {
      code: -32600,
      message: 'Invalid Request: the message is too long; raise limits.bodyBytes',
    };
    send(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
    void close();
  });
  stdin.once('end', () => receive(undefined));
  // A client that stops reading counts as disconnected.
  stdout.on('error', () => {
    outlet.drop();
    void close();
  });
  return { handler, closed, close };
}

type WriteLine = typeof process.stdout.write;

/** Redirects all output to stderr, except what the returned `write` writes. */
function reserveStdout(): { readonly write: WriteLine; undo(): void } {
  const { stdout, stderr } = process;
  const original: WriteLine = stdout.write.bind(stdout);
  // What a tool prints must not end the process once nobody reads it: the client may be gone while a step runs.
  const ignore = (): void => {};
  stderr.on('error', ignore);
  const { writeSync } = fs;
  const redirected = ((...args: Parameters<WriteLine>) => stderr.write(...args)) as WriteLine;
  stdout.write = redirected;
  fs.writeSync = ((fd: number, ...rest: unknown[]) =>
    (writeSync as (fd: number, ...rest: unknown[]) => number)(
      fd === 1 ? 2 : fd,
      ...rest,
    )) as typeof writeSync;
  // For modules that import it by name.
  syncBuiltinESMExports();
  return {
    write: original,
    undo: () => {
      stderr.off('error', ignore);
      stdout.write = original;
      fs.writeSync = writeSync;
      syncBuiltinESMExports();
    },
  };
}

// --- output to the client ---

/**
 * The output to a client on stdout. It owns the bytes that are not written yet, and decides when the client is given
 * up: it has read nothing for `stalled` while more than `MAX_UNSENT` bytes wait, or more than `most` wait. A client
 * that is only slow is never given up; its further requests wait until it has caught up.
 */

interface OutletOptions {
  readonly clock: Clock;
  readonly write: Writable['write'];
  /** How long a client may read nothing, in milliseconds. */
  readonly stalled: number;
  /** Bytes that may wait for a client that reads. */
  readonly most: number;
  /** The client is given up, for this reason. Called once. */
  readonly onStalled: (reason: string) => void;
}

/** Bytes of one write: a stream reports a write only once all its bytes are written. */
const PIECE = 65_536;

class PipeOutlet {
  readonly #options: OutletOptions;
  #waiting: Buffer[] = [];
  #unsent = 0;
  #isWriting = false;
  /** `send` returned false, and something waits still. */
  #isBehind = false;
  #isOver = false;
  #patience: Timer | undefined;
  #caughtUp = (): void => {};
  readonly #drained = new Set<() => void>();

  constructor(options: OutletOptions) {
    this.#options = options;
  }

  /** Bytes that wait for the client. */
  get unsent(): number {
    return this.#unsent;
  }

  /** @returns false when the client is behind */
  send(text: string): boolean {
    if (this.#isOver) return false;
    const bytes = Buffer.from(text);
    this.#unsent += bytes.byteLength;
    for (let at = 0; at < bytes.byteLength; at += PIECE) this.#waiting.push(bytes.subarray(at, at + PIECE));
    this.#writeNext();
    const { most } = this.#options;
    if (this.#unsent > most) this.#giveUp(`more than limits.unreadBytes (${most}) wait for it`);
    else if (this.#unsent > MAX_UNSENT && this.#patience === undefined) this.#watch();
    this.#isBehind ||= this.#unsent >= PIECE;
    return !this.#isBehind;
  }

  /** Resolves at once unless more than `MAX_UNSENT` bytes wait; then once none does. */
  async caughtUp(): Promise<void> {
    if (this.#unsent > MAX_UNSENT)
      await new Promise<void>((resolve) => {
        this.#caughtUp = resolve;
      });
  }

  /** Calls each time that nothing waits any more after a `send` that returned false. */
  onDrain(fn: () => void): void {
    this.#drained.add(fn);
  }

  /** Resolves once all is written, or after that time, in milliseconds; from then on nothing is. */
  async close(within: number): Promise<void> {
    if (this.#unsent > 0 && !this.#isOver) {
      await new Promise<void>((resolve) => {
        this.#isBehind = true;
        this.onDrain(resolve);
        this.#options.clock.after(within, resolve).unref();
      });
    }
    this.drop();
  }

  /** Drops the output that waits: its reader has ended. */
  drop(): void {
    this.#isOver = true;
    this.#patience?.cancel();
    this.#waiting = [];
    this.#unsent = 0;
  }

  #writeNext(): void {
    const piece = this.#isWriting ? undefined : this.#waiting.shift();
    if (piece === undefined) return;
    this.#isWriting = true;
    this.#options.write(piece, (error) => {
      this.#isWriting = false;
      if (this.#isOver || (error !== undefined && error !== null)) return;
      this.#unsent -= piece.byteLength;
      this.#patience?.cancel();
      this.#patience = undefined;
      if (this.#unsent > MAX_UNSENT) this.#watch();
      this.#writeNext();
      if (this.#unsent > 0) return;
      this.#caughtUp();
      if (!this.#isBehind) return;
      this.#isBehind = false;
      for (const fn of this.#drained) fn();
    });
  }

  #watch(): void {
    const { clock, stalled } = this.#options;
    this.#patience = clock
      .after(stalled, () => this.#giveUp(`it has read nothing for ${stalled} ms`))
      .unref();
  }

  #giveUp(reason: string): void {
    if (this.#isOver) return;
    this.drop();
    this.#options.onStalled(reason);
  }
}

/**
 * Takes messages one after the other, each in a turn of the event loop of its own: others get theirs between two of a
 * burst. What the source has read already comes nevertheless, a chunk at most.
 */
function oneByOne(
  source: { pause(): void; resume(): void },
  take: (message: string | undefined) => Promise<void>,
): (message?: string) => void {
  let before = Promise.resolve();
  let arrived = 0;
  return (message) => {
    source.pause();
    arrived += 1;
    before = before
      .then(() => take(message))
      .then(() => {
        arrived -= 1;
        if (arrived === 0) source.resume();
        return nextTurn();
      });
  };
}
