/** The three processes that serve, each with a clock of its own; one that ended is replaced. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import type { Random } from '../fixtures/random.ts';
import { clock, LEASE } from './events.ts';

const PROCESSES = 3;
/** How far the clock of a process may be off, in milliseconds. */
const SKEW = 120_000;
const [source, preload] = ['./server.ts', './skew.mjs'].map((name) =>
  fileURLToPath(new URL(name, import.meta.url)),
);

/**
 * The server as one file of JavaScript: a process that compiled it first would take seconds of a run whose faults come
 * every second.
 * @returns its path
 */
export async function bundleServer(): Promise<string> {
  // Where its packages are found.
  const outfile = fileURLToPath(
    new URL(`../../node_modules/.cache/chaos-${process.pid}.mjs`, import.meta.url),
  );
  await build({
    entryPoints: [source ?? ''],
    outfile,
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
  });
  process.once('exit', () => rmSync(outfile, { force: true }));
  return outfile;
}

interface Slot {
  child: ChildProcess;
  url: string;
}

export class Fleet {
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #random: Random;
  #slots: Slot[] = [];
  readonly #children = new Set<ChildProcess>();
  readonly #expected = new WeakSet<ChildProcess>();
  #full = false;
  #over = false;
  /** Deaths that are not faults of the plan, with the end of the process's output. */
  readonly crashes: string[] = [];
  readonly skews: number[] = [];
  /**
   * Starts that failed, and the end of their output: a process gives up where its store does not answer for five seconds.
   * `again`: the start before it, of the same place, failed too.
   */
  readonly failedStarts: { readonly at: number; readonly said: string; readonly again: boolean }[] = [];

  /**
   * @param script of `bundleServer`
   * @param env of the processes, besides this one's
   */
  constructor(
    script: string,
    storeUrl: string,
    ledgerUrl: string,
    secret: string,
    random: Random,
    env: Readonly<Record<string, string>>,
  ) {
    this.#env = env;
    this.#args = ['--import', preload ?? '', script, storeUrl, ledgerUrl, secret];
    this.#random = random;
  }

  get size(): number {
    return this.#slots.length;
  }

  async start(): Promise<void> {
    this.#slots = await Promise.all(Array.from({ length: PROCESSES }, () => this.#startOne()));
  }

  url(index: number): string {
    return this.#slots[index]?.url ?? '';
  }

  pid(index: number): number {
    return this.#slots[index]?.child.pid ?? 0;
  }

  signal(index: number, name: NodeJS.Signals): void {
    this.#slots[index]?.child.kill(name);
  }

  /** Resolves once the process is gone. */
  async kill(index: number): Promise<void> {
    const { child } = this.#slots[index] ?? {};
    if (child === undefined || !this.#children.has(child)) return;
    this.#expected.add(child);
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  /** Puts another process in the place of one that was killed. */
  async restart(index: number): Promise<void> {
    this.#slots[index] = await this.#startOne();
  }

  /** The disk is full for every process, or is not. */
  async fill(full: boolean): Promise<void> {
    this.#full = full;
    await Promise.all([...this.#children].map((child) => this.#tell(child, full)));
  }

  /** The end: also as this process exits. */
  killAll(): void {
    this.#over = true;
    for (const child of this.#children) child.kill('SIGKILL');
  }

  async #startOne(): Promise<Slot> {
    for (let again = false; ; again = true) {
      const skew = Math.round(this.#random.between(-SKEW, SKEW));
      const slot = await this.#tryToStart(skew);
      if (typeof slot !== 'string') {
        this.skews.push(skew);
        if (this.#full) await this.#tell(slot.child, true);
        return slot;
      }
      if (this.#over) throw new Error('the run is over');
      this.failedStarts.push({ at: clock(), said: slot, again });
      await sleep(300);
    }
  }

  /** @returns the end of its output where it ended instead */
  async #tryToStart(skew: number): Promise<Slot | string> {
    const child = spawn(process.execPath, this.#args, {
      env: { ...process.env, CHAOS_SKEW: String(skew), CHAOS_LEASE: String(LEASE), ...this.#env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#children.add(child);
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-3_000);
    });
    let up = false;
    const gone = once(child, 'exit').then(() => {
      this.#children.delete(child);
      if (!up || this.#over || this.#expected.has(child)) return undefined;
      this.crashes.push(`process ${child.pid} died by itself (${child.exitCode}): ${said}`);
      const index = this.#slots.findIndex((slot) => slot.child === child);
      if (index >= 0) void this.#startOne().then((slot) => this.#slots.splice(index, 1, slot));
      return undefined;
    });
    if (child.stdout === null) return said;
    const port = await Promise.race([once(createInterface(child.stdout), 'line'), gone]);
    if (port === undefined) return said;
    up = true;
    return { child, url: `http://127.0.0.1:${String(port[0])}/mcp` };
  }

  /** Resolves once the process has applied it, or has ended. */
  async #tell(child: ChildProcess, full: boolean): Promise<void> {
    if (!child.connected) return;
    // One that loses leaves its listeners behind, and there are many faults in the life of a process.
    const settled = new AbortController();
    const { signal } = settled;
    const heard = Promise.race([once(child, 'message', { signal }), once(child, 'exit', { signal })]);
    child.send({ full }, () => {});
    await heard.finally(() => settled.abort()).catch(() => {});
  }
}
