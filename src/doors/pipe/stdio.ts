/**
 * `mcp-await/stdio`: one client on this process's stdin and stdout; its first message decides the revision. Meanwhile
 * stdout carries the protocol alone: other output of the process goes to stderr.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import process from 'node:process';
import type { Readable, Writable } from 'node:stream';
import { systemClock } from '../../base/values.ts';
import { limitsOf } from '../../call/limits.ts';
import type { AwaitHandler } from '../../handler/await-handler.ts';
import { type AwaitOptions, createAwaitHandler } from '../../handler/handler.ts';
import type { HostFactory } from '../../host/host.ts';
import { consoleLogger } from '../../observe/logger.ts';
import { Lines } from '../../proxy/lines.ts';
import { PipeOutlet } from './outlet.ts';
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
  let settle = (): void => {};
  const closed = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const outlet = new PipeOutlet({
    clock: systemClock,
    write,
    stalled: limits.stalled,
    most: limits.unreadBytes,
    onFull: (isFull) => void (isFull ? stdin.pause() : isClosing || stdin.resume()),
    onStalled: (reason) => {
      (rest.logger ?? consoleLogger).warn(
        'the client on stdio is disconnected, since it does not read: it must read its end all the time, or the limit must be raised',
        { reason },
      );
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
  const lines = new Lines(limits.bodyBytes, (line) => pipe.receive(line));
  stdin.on('data', (chunk: Buffer | string) => {
    if (lines.push(Buffer.from(chunk)) !== undefined) return;
    const error = {
      code: -32600,
      message: 'Invalid Request: the message is too long; raise limits.bodyBytes',
    };
    send(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
    void close();
  });
  stdin.once('end', () => void close());
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
