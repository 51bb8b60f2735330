/** How processes reach one another: messages by name. Most names are one process's; one is all processes'. */
export interface Relay {
  /**
   * Receives messages to `name` from the moment this resolves; where several listen to a name, each receives them.
   * @returns a function that stops it
   */
  listen(name: string, hear: (message: string) => void): Promise<() => Promise<void>>;
  /**
   * May lose, delay, reorder or repeat.
   * @returns false only if it is certain that no process listens
   */
  send(name: string, message: string): Promise<boolean>;
  close(): Promise<void>;
}

/** A relay that a process listens on under one name, as long as both work. */
export class RelayListener {
  /** Whether others can reach it here. */
  isOn = false;
  readonly #stop: Promise<(() => Promise<void>) | undefined>;

  /** @param failed called where the relay does not listen */
  constructor(
    relay: Relay | undefined,
    name: string,
    hear: (message: string) => void,
    failed: (error: unknown) => void,
  ) {
    const listen = async () => {
      const stop = await relay?.listen(name, hear);
      this.isOn = relay !== undefined;
      return stop;
    };
    this.#stop = listen().catch((error: unknown) => {
      failed(error);
      return undefined;
    });
  }

  async close(): Promise<void> {
    // A relay that is down may never resolve it.
    const stop = this.isOn ? await this.#stop : undefined;
    this.isOn = false;
    await stop?.();
  }
}
