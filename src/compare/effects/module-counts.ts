/** What a server keeps in variables of its modules, without what its factory changes: a replay makes a new instance. */
import type { HostFactory } from '../../host/host.ts';
import { ModuleWatch } from './module-state.ts';

/** By variable: `/server.ts sent`. */
export type Counts = Readonly<Record<string, number>>;

export class ModuleCounts {
  /** The factory, whose own changes are not counted. */
  readonly factory: HostFactory;
  readonly #built = new Map<string, number>();
  readonly #root: HostFactory;
  #watch: ModuleWatch | undefined;

  constructor(root: HostFactory) {
    this.#root = root;
    this.factory = async (context) => {
      const before = this.#watch?.read();
      const host = await root(context);
      for (const [variable, count] of before === undefined ? [] : (this.#watch?.read() ?? [])) {
        const change = count - (before?.get(variable) ?? 0);
        if (change !== 0) this.#built.set(variable, (this.#built.get(variable) ?? 0) + change);
      }
      return host;
    };
  }

  /** Begins to count at the first call. */
  read(): Counts {
    this.#watch ??= new ModuleWatch(this.#root);
    const counts = [...this.#watch.read()].map(
      ([variable, count]) => [variable, count - (this.#built.get(variable) ?? 0)] as const,
    );
    return Object.fromEntries(counts);
  }

  close(): void {
    this.#watch?.close();
    this.#watch = undefined;
  }
}
