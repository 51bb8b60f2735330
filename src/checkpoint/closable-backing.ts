/**
 * A store that stops: what was begun is waited for, and nothing is begun after that. A client of Redis that gets a
 * command after it was disconnected connects again, and keeps its process running.
 */
import { AwaitError, type JsonObject } from '../base/values.ts';
import type { Backing, ListedKey } from './backing.ts';

export class ClosableBacking implements Backing {
  readonly #backing: Backing;
  readonly #running = new Set<Promise<unknown>>();
  #isClosed = false;

  constructor(backing: Backing) {
    this.#backing = backing;
  }

  get primitive(): Backing['primitive'] {
    return this.#backing.primitive;
  }

  get canList(): boolean {
    return this.#backing.canList;
  }

  insert(...args: Parameters<Backing['insert']>): Promise<boolean> {
    return this.#run(() => this.#backing.insert(...args));
  }

  replace(...args: Parameters<Backing['replace']>): Promise<void> {
    return this.#run(() => this.#backing.replace(...args));
  }

  get(name: string): Promise<unknown> {
    return this.#run(() => this.#backing.get(name));
  }

  getAll(names: readonly string[]): Promise<unknown[]> {
    return this.#run(() => this.#backing.getAll(names));
  }

  remove(names: readonly string[]): Promise<void> {
    return this.#run(() => this.#backing.remove(names));
  }

  removeKeys(keys: readonly string[]): Promise<void> {
    return this.#run(() => this.#backing.removeKeys(keys));
  }

  keys(): AsyncIterable<ListedKey> {
    return this.#each(this.#backing.keys());
  }

  firstEntries(...args: Parameters<Backing['firstEntries']>): AsyncIterable<JsonObject> {
    return this.#each(this.#backing.firstEntries(...args));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.allSettled(this.#running);
  }

  /** A list is read page by page: each is an operation of its own. */
  async *#each<T>(items: AsyncIterable<T>): AsyncGenerator<T> {
    const iterator = items[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await this.#run(() => iterator.next());
        if (next.done) return;
        yield next.value;
      }
    } finally {
      await iterator.return?.();
    }
  }

  #run<T>(operation: () => Promise<T>): Promise<T> {
    if (this.#isClosed) return Promise.reject(new AwaitError('closed', 'this process has closed its store'));
    const running = operation();
    this.#running.add(running);
    const over = (): void => void this.#running.delete(running);
    running.then(over, over);
    return running;
  }
}
