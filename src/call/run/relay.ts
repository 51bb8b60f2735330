import { systemClock, within } from '../../base/values.ts';

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

/** How long a relay or a store may take to let go, in milliseconds: what it is about to say may be lost in any case. */
export const ENDING = 2_000;
/** When a relay that does not listen is asked again, and one that is silent is not waited for, in milliseconds. */
const AGAIN = 1_000;

/** A relay that a process listens on under one name, as soon as it can and for as long as both work. */
export class RelayListener {
  /** Whether others can reach it here. */
  isOn = false;
  /** Resolves once the relay was asked for the first time, or is silent. */
  readonly asked: Promise<void>;
  #stop: (() => Promise<void>) | undefined;
  #hasFailed = false;
  #isClosed = false;

  /** @param warn called once, where the relay does not listen at first */
  constructor(
    relay: Relay | undefined,
    name: string,
    hear: (message: string) => void,
    warn: (message: string, detail: { readonly error: unknown }) => void,
  ) {
    const listen = async (): Promise<void> => {
      if (this.#isClosed) return;
      try {
        this.#stop = await relay?.listen(name, hear);
        this.isOn = relay !== undefined;
        if (this.#isClosed) await this.close();
      } catch (error) {
        if (!this.#hasFailed) warn('the relay does not listen yet', { error });
        this.#hasFailed = true;
        systemClock.after(AGAIN, listen).unref();
      }
    };
    this.asked = within(systemClock, AGAIN, listen());
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const stop = this.isOn && this.#stop;
    this.isOn = false;
    if (stop) await within(systemClock, ENDING, Promise.resolve().then(stop));
  }
}
