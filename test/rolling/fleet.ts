/** Three processes on ports of their own; each is restarted in turn by SIGTERM, as a supervisor does it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const PROCESSES = 3;
/** How long a process may take to end by itself, in milliseconds: the time that Kubernetes gives by default. */
const GRACE = 30_000;

interface Slot {
  readonly port: number;
  child: ChildProcess;
}

export class Fleet {
  readonly #argsOf: (port: number) => readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #slots: Slot[] = [];
  /** Ends that are not the run's: a crash, an exit code above 0, a process that had to be killed. */
  readonly faults: string[] = [];
  /** What processes wrote to stderr. */
  readonly lines: string[] = [];
  /** How long each restart took, in milliseconds. */
  readonly ends: number[] = [];

  /** @param argsOf the arguments of `node` for a process on a port */
  constructor(argsOf: (port: number) => readonly string[], env: Readonly<Record<string, string>>) {
    this.#argsOf = argsOf;
    this.#env = env;
    process.once('exit', this.#killAll);
  }

  async start(): Promise<void> {
    for (let nth = 0; nth < PROCESSES; nth += 1) {
      const port = await freePort();
      this.#slots.push({ port, child: await this.#spawn(port) });
    }
  }

  get ports(): readonly number[] {
    return this.#slots.map(({ port }) => port);
  }

  /** Ends each process in turn, and starts another in its place. */
  async restartAll(pause: number): Promise<void> {
    for (const slot of this.#slots) {
      // A supervisor and npm together send it twice.
      setTimeout((child: ChildProcess) => child.kill('SIGTERM'), 20, slot.child).unref();
      await this.#end(slot.child);
      slot.child = await this.#spawn(slot.port);
      await sleep(pause);
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#slots.map(({ child }) => this.#end(child)));
    process.off('exit', this.#killAll);
  }

  readonly #killAll = (): void => {
    for (const { child } of this.#slots) child.kill('SIGKILL');
  };

  async #end(child: ChildProcess): Promise<void> {
    const began = performance.now();
    const gone = once(child, 'exit') as Promise<[number | null, string | null]>;
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), GRACE);
    const [code, signal] = await gone;
    clearTimeout(timer);
    this.ends.push(performance.now() - began);
    if (code !== 0) this.faults.push(`process ${child.pid} ended with ${code ?? signal}`);
  }

  async #spawn(port: number): Promise<ChildProcess> {
    const child = spawn(process.execPath, this.#argsOf(port), {
      env: { ...process.env, ...this.#env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    createInterface({ input: child.stderr }).on('line', (line) => this.lines.push(`${child.pid}: ${line}`));
    const up = once(createInterface({ input: child.stdout }), 'line');
    const ended = once(child, 'exit').then(() => {
      throw new Error(`a process did not come up:\n${this.lines.slice(-20).join('\n')}`);
    });
    await Promise.race([up, ended]);
    ended.catch(() => {});
    child.stdout.resume();
    return child;
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' ? (address?.port ?? 0) : 0));
    });
  });
}
