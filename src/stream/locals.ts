/** This process's state of streams: those it appends to, or did, and those with a connection here. */
import { AwaitError } from '../base/values.ts';
import type { Appender } from './appender.ts';
import { isStandingId } from './event-id.ts';
import type { StreamLog } from './log.ts';
import type { Tail } from './tail.ts';

export interface Local {
  readonly log: StreamLog;
  readonly scope: string;
  /** Whose it is, once this process appends to it: a known caller's, by its name, or a stranger's. */
  caller?: { readonly name: string | undefined };
  appender?: Appender | undefined;
  tail?: Tail | undefined;
  /** Set where another process may append too, although the stream has one appender. */
  isJoined?: true;
  /** Set until the connection comes that it was opened for. */
  isFresh?: true;
  /** The last position, once it has ended here, and when that was. */
  ended?: { readonly at: number; readonly when: number };
  /** The operation that runs last on it; operations run one after the other. */
  last: Promise<unknown>;
  /** Operations that run. */
  uses: number;
}

export class Locals {
  readonly #most: number;
  readonly #failed: (error: unknown) => void;
  readonly #byName = new Map<string, Local>();
  /** Those that were opened here, the oldest first: they count. */
  readonly #counted = new Map<string, Set<Local>>();
  /** How many may be opened yet, by their scope. */
  readonly #reserved = new Map<string, number>();

  /** @param most streams of one scope */
  constructor(most: number, failed: (error: unknown) => void) {
    this.#most = most;
    this.#failed = failed;
  }

  get(name: string): Local | undefined {
    return this.#byName.get(name);
  }

  of(log: StreamLog, scope: string): Local {
    const local = this.#byName.get(log.name) ?? { log, scope, last: Promise.resolve(), uses: 0 };
    this.#byName.set(log.name, local);
    return local;
  }

  /**
   * Takes one more stream into the account of its scope; the oldest finished ones are deleted for it.
   * @throws AwaitError `limit`
   */
  count(local: Local): void {
    const counted = this.#counted.get(local.scope) ?? new Set();
    this.#counted.set(local.scope, counted);
    while (counted.size >= this.#most && !counted.has(local)) {
      const ended = [...counted].filter(({ ended }) => ended !== undefined);
      const oldest = ended.find(({ tail }) => tail === undefined) ?? ended[0];
      if (oldest !== undefined) this.#delete(oldest);
      else throw this.#tooMany();
    }
    counted.add(local);
  }

  /**
   * Counts a stream that may be opened later.
   * @returns how to give its place back
   * @throws AwaitError `limit`
   */
  reserve(scope: string): () => void {
    const reserved = this.#reserved.get(scope) ?? 0;
    const counted = this.#counted.get(scope) ?? new Set();
    if (reserved + counted.size >= this.#most) {
      const unfinished = [...counted].filter(({ ended }) => ended === undefined).length;
      if (reserved + unfinished >= this.#most) throw this.#tooMany();
    }
    this.#reserved.set(scope, reserved + 1);
    return () => {
      const left = (this.#reserved.get(scope) ?? 1) - 1;
      if (left > 0) this.#reserved.set(scope, left);
      else this.#reserved.delete(scope);
    };
  }

  #tooMany(): AwaitError {
    return new AwaitError('limit', `${this.#most} streams of one session are unfinished`);
  }

  /** Its appender here is done. */
  done(local: Local, now: number): void {
    local.ended = { at: local.appender?.position ?? 0, when: now };
    local.appender = undefined;
  }

  /** Forgets it unless something here still needs it. */
  release(local: Local): void {
    const { appender, tail, uses, scope, log } = local;
    if (appender !== undefined || tail !== undefined || uses > 0) return;
    if (!this.#counted.get(scope)?.has(local)) this.#byName.delete(log.name);
  }

  /**
   * Drops expired streams (the store has a sweeper of its own), and deletes those that ended here long enough ago.
   * @param life of a stream that has ended, in milliseconds
   */
  sweep(now: number, life: number): void {
    for (const local of this.#byName.values()) {
      const { ended, tail, log } = local;
      if (log.expires < now) this.forget(local);
      else if (ended !== undefined && tail === undefined && ended.when + life < now) this.#delete(local);
    }
  }

  drop(scope: string): void {
    for (const local of this.#byName.values()) if (local.scope === scope) this.#delete(local);
  }

  /** A stream that is being written here alone stays: its call runs here, and ends or hands it over itself. */
  handOverAll(): void {
    for (const { tail, appender, log } of this.#byName.values())
      if (appender?.isOpen !== true || isStandingId(log.id)) tail?.end('leaving');
  }

  /** Resolves once it is written which events the connections had. */
  async close(): Promise<void> {
    const all = [...this.#byName.values()];
    for (const { tail } of all) tail?.end('leaving');
    this.#byName.clear();
    this.#counted.clear();
    await Promise.all(all.map(({ last }) => last));
  }

  #delete(local: Local): void {
    const upTo = local.ended?.at ?? local.appender?.position ?? 0;
    this.forget(local);
    local.log.removeAll(upTo).catch(this.#failed);
  }

  /** Ends its connections and its appender here; its records stay. */
  forget(local: Local): void {
    const { tail, log, appender } = local;
    tail?.end('closed');
    appender?.abandon();
    local.appender = undefined;
    const counted = this.#counted.get(local.scope);
    counted?.delete(local);
    if (counted?.size === 0) this.#counted.delete(local.scope);
    this.#byName.delete(log.name);
  }
}
