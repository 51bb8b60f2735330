/**
 * A server as a child process that speaks over its stdin and stdout, one JSON-RPC message a line.
 * 1. The child leads a process group, so the processes that it starts (npx starts a shell, which starts node) end with
 *    it.
 * 2. Its output is bounded: a line by `lineBytes` and by its values, messages, lines and bytes by `RATE`, beyond which it
 *    is read no faster, and what is held of it by the budget of all links. Lines that are not JSON-RPC are logged and
 *    dropped.
 * 3. No child outlives this process: its groups are killed on exit, and by the watchdog where no exit handler runs.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { excessOf } from '../base/bounded-response.ts';
import type { Account, OpenAccount } from '../base/budget.ts';
import { systemClock, within } from '../base/values.ts';
import { Inflow } from './inflow.ts';
import { Lines } from './lines.ts';
import { FULL, isRpcMessage, type LinkEvents, type PeerLink, type PeerLogger } from './link.ts';

export interface ChildOptions {
  /** The program, looked up in PATH. */
  readonly command: string;
  readonly args?: readonly string[];
  /** Added to this process's environment (without `MCP_AWAIT_SECRET`); `undefined` takes a variable out. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  /** Bytes of one line of its stdout. Default 16 MiB. */
  readonly lineBytes?: number;
}

const LINE_BYTES = 16_777_216;
/** Messages of a child that are read in a second. */
export const RATE = 2_000;
/** Messages of a child's stderr that are read in a second: ten lines count as one message. */
const LOG_RATE = 200;
/** Bytes that are read of a pipe at once. */
const PIECE = 4_096;
/** How long a child has after its input was closed, and again after SIGTERM, in milliseconds. */
const GRACE = 2_000;
/** How long its pipes are read on after it ended, in milliseconds. */
const LAST_WORDS = 500;
/** Lines of a stack trace, which say less than the line before them. */
const FRAME = /^\s*(?:at |\^|[{}]|\S+: .*,$|Node\.js v|File ")/;
/** Rubbish of one child that is logged, in lines. */
const RUBBISH = 20;
/** Characters of a line that the log quotes. */
const QUOTED = 200;

const living = new Set<ChildProcess>();
let listens = false;

export class ChildLink implements PeerLink {
  readonly #name: string;
  readonly #logger: PeerLogger;
  readonly #events: LinkEvents;
  readonly #child: ChildProcess;
  readonly #lineBytes: number;
  readonly #gone: Promise<void>;
  #ended = false;
  #why: string | undefined;
  #rubbish = 0;
  /** As JSON: a piece of a line would keep the whole line in memory. */
  #firstRubbish: string | undefined;
  #lastError: string | undefined;
  readonly #inflow: Inflow;
  /** What it has not read of its input. */
  readonly #unread: Account;

  constructor(
    options: ChildOptions,
    name: string,
    logger: PeerLogger,
    account: OpenAccount,
    events: LinkEvents,
  ) {
    this.#name = name;
    this.#logger = logger;
    this.#events = events;
    this.#lineBytes = options.lineBytes ?? LINE_BYTES;
    const { command, args = [], env, cwd } = options;
    endWithProcess();
    // The secret that seals every caller's tokens is not the child's business, unless `env` names it.
    const { MCP_AWAIT_SECRET: _, ...inherited } = process.env;
    const child = spawn(command, [...args], {
      env: { ...inherited, ...env },
      cwd,
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: process.platform !== 'win32',
      windowsHide: true,
    });
    this.#child = child;
    living.add(child);
    if (child.pid !== undefined) watch(child.pid);
    this.#inflow = new Inflow({
      rate: RATE,
      account,
      pass: (message) => this.#events.message(message),
      link: this,
    });
    this.#unread = account(() => this.kill(FULL));
    const lines = new Lines(this.#lineBytes, (line) => this.#line(line));
    this.#read(child.stdout, lines, this.#inflow, () =>
      this.kill(`it wrote a line longer than ${this.#lineBytes} bytes`),
    );
    // `#why` is set by then if it has exited, or was told to.
    child.stdout.once('end', () =>
      setTimeout(() => this.#why ?? this.kill('it closed its output'), LAST_WORDS).unref(),
    );
    const errors = new Lines(65_536, (line) => {
      if (!FRAME.test(line)) this.#lastError = JSON.stringify(line.trim().slice(0, QUOTED));
      this.#logger.info(line.slice(0, 8_192), { from: this.#name });
    });
    // A longer line of its log is dropped in pieces; it does not end the child.
    this.#read(child.stderr, errors, new Inflow({ rate: LOG_RATE }), () => errors.flush());
    child.stdin.on('error', () => {});
    this.#gone = new Promise((resolve) => {
      child.once('error', (error: NodeJS.ErrnoException) => {
        this.#why ??=
          error.code === 'ENOENT'
            ? `there is no command '${command}'`
            : `it could not be started: ${error.message}`;
        resolve();
      });
      child.once('exit', (code, signal) => {
        this.#why ??= signal === null ? `it ended with exit code ${code}` : `it was ended by ${signal}`;
        // Its last output may still be in the pipe, which a process that it started may keep open.
        child.once('close', () => resolve());
        setTimeout(resolve, LAST_WORDS);
      });
    });
    void this.#gone.then(() => this.#isGone());
  }

  /** Reads a pipe no faster than the rate: the rest waits in the pipe, and then in the child. */
  #read(pipe: Readable, lines: Lines, inflow: Inflow, tooLong: () => void): void {
    pipe.on('data', (chunk: Buffer) => {
      if (this.#ended) return;
      pipe.pause();
      // So many short lines that are no messages would hold the event loop.
      if (chunk.byteLength > PIECE) pipe.unshift(chunk.subarray(PIECE));
      const piece = chunk.subarray(0, PIECE);
      const ended = lines.push(piece);
      if (ended === undefined) tooLong();
      inflow.took(ended ?? 0, piece.byteLength, lines.memory);
      void Promise.resolve(inflow.ready()).then(() => pipe.resume());
    });
  }

  send(message: object): void {
    const { stdin } = this.#child;
    if (this.#ended || stdin === null || stdin.destroyed) return;
    const counted = (): void => this.#unread.set(stdin.writableLength);
    stdin.write(`${JSON.stringify(message)}\n`, counted);
    if (stdin.writableLength > this.#lineBytes) this.kill('it does not read its input');
    counted();
  }

  async close(): Promise<void> {
    const { stdin } = this.#child;
    this.#why ??= 'it was closed';
    stdin?.end();
    await within(systemClock, GRACE, this.#gone);
    if (!this.#ended) signalGroup(this.#child, 'SIGTERM');
    await within(systemClock, GRACE, this.#gone);
    if (!this.#ended) this.kill();
    await this.#gone;
  }

  kill(reason = 'it was ended'): void {
    this.#why ??= reason;
    // Nothing more is read from it: a process that it started outside of its group may go on writing.
    this.#inflow.close();
    this.#unread.close();
    this.#child.stdout?.destroy();
    signalGroup(this.#child, 'SIGKILL');
  }

  #line(line: string): void {
    if (this.#ended) return;
    const excess = excessOf(line);
    if (excess !== undefined) {
      this.kill(`it sent a message ${excess}`);
      return;
    }
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      message = undefined;
    }
    for (const one of Array.isArray(message) ? message : [message]) {
      if (isRpcMessage(one)) this.#inflow.push(one);
      else this.#dropped(line);
    }
  }

  #dropped(line: string): void {
    // As one message.
    this.#inflow.took(10, 0);
    this.#rubbish += 1;
    this.#firstRubbish ??= JSON.stringify(line.slice(0, QUOTED));
    if (this.#rubbish > RUBBISH) return;
    this.#logger.warn('a line on the stdout of a server is not a JSON-RPC message; it was dropped', {
      from: this.#name,
      line: line.slice(0, QUOTED),
      ...(this.#rubbish === RUBBISH && { more: 'further lines are not logged' }),
    });
  }

  #isGone(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#inflow.close();
    this.#unread.close();
    // Ends the processes that it started too.
    signalGroup(this.#child, 'SIGKILL');
    living.delete(this.#child);
    // The group has ended: its number may be given to another one.
    if (this.#child.pid !== undefined) shell?.stdin?.write(`- ${this.#child.pid}\n`);
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
    let why = this.#why ?? 'it ended';
    if (this.#firstRubbish)
      why += `; its stdout began with ${this.#firstRubbish}, which is no JSON-RPC message`;
    if (this.#lastError) why += `; the last line of its stderr was ${this.#lastError}`;
    this.#events.ended(why);
  }
}

/** To the whole group, where there are groups. */
function signalGroup(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): void {
  if (child.pid === undefined) return;
  try {
    if (process.platform === 'win32') child.kill(signal);
    else process.kill(-child.pid, signal);
  } catch {
    // The group has ended already.
  }
}

function endWithProcess(): void {
  if (listens) return;
  listens = true;
  process.on('exit', () => {
    for (const child of living) signalGroup(child, 'SIGKILL');
  });
}

// --- the watchdog ---

/**
 * Ends the children of a process that was killed by a signal it cannot catch (SIGKILL, an out-of-memory kill). A shell
 * in a session of its own reads this process's pipe: it is sent the ids of the process groups, and kills those that are
 * left when the pipe closes. Most children end by themselves when their input closes; the shell is for those that do
 * not. Not on Windows, which has no such shell.
 */

const SCRIPT = `
pids=" "
while read -r sign pid; do
  case $sign in
    +) pids="$pids$pid " ;;
    -) case $pids in *" $pid "*) pids="\${pids%% $pid *} \${pids#* $pid }" ;; esac ;;
  esac
done
[ "$pids" = " " ] && exit 0
sleep ${GRACE / 1_000}
for pid in $pids; do kill -KILL "-$pid" 2>/dev/null; done
`;

let shell: ChildProcess | undefined;

/** Has a process group ended with this process, however that ends. */
function watch(pid: number): void {
  if (process.platform === 'win32') return;
  shell ??= start();
  shell.stdin?.write(`+ ${pid}\n`);
}

function start(): ChildProcess {
  const child = spawn('/bin/sh', ['-c', SCRIPT], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  const forget = (): void => {
    if (shell === child) shell = undefined;
  };
  child.once('error', forget);
  child.once('exit', forget);
  child.stdin?.on('error', forget);
  child.unref();
  // The type is a Writable, which has no unref; a pipe's socket has one.
  (child.stdin as { unref?(): void } | null)?.unref?.();
  return child;
}
