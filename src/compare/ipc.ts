/** Calls in both directions between a process and its child, over the channel that Node opens for them. */
import { isObject, reasonOf } from '../base/values.ts';

interface ProcessChannel {
  send?(message: unknown): unknown;
  on(event: 'message', listener: (message: unknown) => void): unknown;
}

type Service = (...args: never[]) => unknown;

export class Ipc {
  readonly #channel: ProcessChannel;
  readonly #open = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #calls = 0;
  #ended: Error | undefined;

  constructor(channel: ProcessChannel, services: Readonly<Record<string, Service>>) {
    this.#channel = channel;
    channel.on('message', (message) => {
      if (!isObject(message)) return;
      if (typeof message.call === 'string') void this.#serve(services, message);
      else {
        const { value, error } = message;
        const id = Number(message.id);
        const open = this.#open.get(id);
        this.#open.delete(id);
        if (error === undefined) open?.resolve(value);
        else open?.reject(new Error(String(error)));
      }
    });
  }

  call(name: string, ...args: readonly unknown[]): Promise<unknown> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    this.#calls += 1;
    const id = this.#calls;
    return new Promise((resolve, reject) => {
      this.#open.set(id, { resolve, reject });
      this.#channel.send?.({ call: name, args, id });
    });
  }

  /** Fails the open requests: the other process has ended. */
  end(reason: Error): void {
    this.#ended = reason;
    for (const { reject } of this.#open.values()) reject(reason);
    this.#open.clear();
  }

  async #serve(services: Readonly<Record<string, Service>>, message: Record<string, unknown>): Promise<void> {
    const { call, args, id } = message;
    try {
      const value = await services[String(call)]?.(...(args as never[]));
      this.#reply({ id, value });
    } catch (error) {
      this.#reply({ id, error: reasonOf(error) });
    }
  }

  #reply(message: unknown): void {
    if (this.#ended === undefined) this.#channel.send?.(message);
  }
}
