/**
 * The server's asks without an answer: the stream that each came on, and its id there.
 * A server may count its asks anew on each stream, while the client identifies them by their ids alone. So an id that
 * is open on another stream is renamed on the way in, and restored on the way out.
 */
import type { Answer, RequestId } from './message.ts';

/** The sender of asks, which gets their answers by their ids on the wire. */
export interface Asker {
  answer(id: RequestId, answer: Answer): Promise<void>;
  /** The server takes the ask back. */
  withdraw(id: RequestId): void;
}

export interface OpenAsk {
  readonly asker: Asker;
  /** Its id on the wire. */
  readonly id: RequestId;
}

export class Asks {
  /** By the id that the client knows. */
  readonly #open = new Map<RequestId, OpenAsk>();
  #renamed = 0;

  /** The id for the client; none if this very ask is open, since a resumed stream may repeat it. */
  open(asker: Asker, id: RequestId): RequestId | undefined {
    if (this.nameOf(asker, id) !== undefined) return undefined;
    let name: RequestId = id;
    while (this.#open.has(name)) {
      this.#renamed += 1;
      name = `${id}~${this.#renamed}`;
    }
    this.#open.set(name, { asker, id });
    return name;
  }

  /** Forgets it: it has been answered, or will not be. */
  take(name: RequestId): OpenAsk | undefined {
    const ask = this.#open.get(name);
    this.#open.delete(name);
    return ask;
  }

  nameOf(asker: Asker, id: RequestId): RequestId | undefined {
    for (const [name, ask] of this.#open) if (ask.asker === asker && ask.id === id) return name;
    return undefined;
  }
}
