/** The open connections of known callers, on every wire, so that all of a caller's can be closed at once. */

export class Connections {
  readonly #open = new Map<string, Set<() => void>>();

  /**
   * @param caller undefined for an anonymous one, whose connections nobody can name
   * @param close closes the connection
   * @returns a function to call when it has ended
   */
  add(caller: string | undefined, close: () => void): () => void {
    if (caller === undefined) return () => {};
    const own = this.#open.get(caller) ?? new Set();
    this.#open.set(caller, own);
    own.add(close);
    return () => {
      own.delete(close);
      if (own.size === 0 && this.#open.get(caller) === own) this.#open.delete(caller);
    };
  }

  /** Closes a caller's connections. @returns how many there were */
  close(caller: string): number {
    const own = [...(this.#open.get(caller) ?? [])];
    this.#open.delete(caller);
    for (const close of own) close();
    return own.length;
  }
}
