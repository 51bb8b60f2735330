/** The state that the sites of one play share, in all of their processes. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type AwaitError, deferred, hasCode, optionError } from '../base/values.ts';
import { memoryRelay } from '../relay/memory.ts';
import { type Effect, observeEffects } from './effects/observer.ts';
import type { Player } from './player.ts';
import { SharedStore, type StoreAccess } from './shared-store.ts';
import type { LogLine, Site } from './site.ts';

/** Milliseconds that a server may take until a client is connected. */
const CONNECTING = 10_000;

/** An effect in a play. */
export interface SeenEffect extends Effect {
  /** Whether its call asked after it: where the call continues in another process, it happens again. */
  isBeforeAsk: boolean;
}

export class Stage {
  readonly store = new SharedStore();
  readonly relay = memoryRelay();
  readonly secret = randomBytes(32).toString('base64url');
  /** The log lines of its sites, in order. */
  readonly lines: LogLine[] = [];
  /** What its calls did outside of steps, since `takeEffects`. */
  #effects: SeenEffect[] = [];
  /** Rejects once one of its processes ends by itself. */
  readonly failed: Promise<never>;
  /** Whether one of its processes ended by itself; `failed` rejects once its last lines are there. */
  isLost = false;
  readonly fail: (error: AwaitError) => void;
  readonly #sites: Site[] = [];
  #stop: (() => void) | undefined;
  #isClosed = false;

  constructor() {
    const { promise, reject } = deferred<never>();
    this.failed = promise;
    this.fail = reject;
    // Nobody may be waiting.
    this.failed.catch(() => {});
    this.store.onAsk = (call) => {
      for (const effect of this.#effects) if (effect.call === call) effect.isBeforeAsk = true;
    };
  }

  /** Called with what a process prints, and its name. */
  onOutput: ((text: string, process: string) => void) | undefined;
  /** Called with each effect, and the name of its process. */
  onEffect: ((effect: Effect, process: string) => void) | undefined;
  /** Called with each log line, and the name of its process. */
  onLog: ((line: LogLine, process: string) => void) | undefined;

  log(line: LogLine, process: string): void {
    this.lines.push(line);
    this.onLog?.(line, process);
  }

  /** The store, as the process of that name uses it. */
  storeOf(name: string): StoreAccess {
    const { store } = this;
    return {
      get: (key) => store.get(key),
      set: (key, value) => store.set(key, value),
      delete: (key) => store.delete(key),
      insertIfAbsent: (key, value) => store.insertIfAbsent(key, value, name),
    };
  }

  /** Observes this process, whose server plays here. */
  observe(): void {
    this.#stop ??= observeEffects((effect) => this.saw(effect));
  }

  /** Takes an effect of any stage of a process. */
  readonly saw = (effect: Effect, process = ''): void => {
    if (this.#isClosed) return;
    this.#effects.push({ ...effect, isBeforeAsk: false });
    this.onEffect?.(effect, process);
  };

  /** What its calls did outside of steps since this was last asked. A call without a journal is never run again. */
  takeEffects(): readonly SeenEffect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects.filter(({ call }) => this.store.knows(call));
  }

  /** Resolves if its processes answer. */
  async answers(): Promise<void> {
    await Promise.all(this.#sites.map((site) => site.answers()));
  }

  /** Closes the site when this is closed. */
  keep(site: Site): Site {
    this.#sites.push(site);
    return site;
  }

  /**
   * A client, once it is connected.
   *
   * @throws AwaitError `bad-option` if its server refuses it, hangs, or ends
   */
  async connected(revision: string, opening: Promise<Player>): Promise<Player> {
    const hangs = async (): Promise<never> => {
      await sleep(CONNECTING, undefined, { ref: false });
      const why = `its server has not answered after ${CONNECTING / 1_000} seconds`;
      throw optionError(`no client can connect on ${revision}: ${why}`);
    };
    try {
      return await Promise.race([opening, this.failed, hangs()]);
    } catch (error) {
      void opening.then((late) => late.close()).catch(() => {});
      throw this.#refused(revision, error);
    }
  }

  /** The error of a failed client, with the reason that the server's process logged. */
  #refused(revision: string, error: unknown): AwaitError {
    // A package that is not installed, or a process that ended: the error says it all.
    if (hasCode(error, 'bad-option')) return error;
    const logged = this.lines.findLast(({ level }) => level === 'error');
    const why =
      logged === undefined ? String(error) : `${logged.message} ${String(logged.detail.cause ?? '')}`.trim();
    return optionError(`no client can connect on ${revision}: ${why}`, error);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.allSettled(this.#sites.map((site) => site.close()));
    this.#stop?.();
  }
}
