/**
 * The server's asks without an answer: the stream that each came on, and its id there.
 * A server may count its asks anew on each stream, while the client identifies them by their ids alone. So an id that
 * is open on another stream is renamed on the way in, and restored on the way out.
 */
import type { RequestId, RpcAnswer } from './message.ts';

/** The sender of asks, which gets their answers by their ids on the wire. */
export interface AskSender {
  answer(id: RequestId, answer: RpcAnswer): Promise<void>;
  /** The server takes the ask back. */
  withdraw(id: RequestId): void;
}

export interface PendingAsk {
  readonly asker: AskSender;
  /** Its id on the wire. */
  readonly id: RequestId;
}

export class Asks {
  /** By the id that the client knows. */
  readonly #open = new Map<RequestId, PendingAsk>();
  /** The ids that the client knows, by those on the wire. */
  readonly #names = new WeakMap<AskSender, Map<RequestId, RequestId>>();
  #renamed = 0;

  /** The id for the client; none if this very ask is open, since a resumed stream may repeat it. */
  open(asker: AskSender, id: RequestId): RequestId | undefined {
    if (this.nameOf(asker, id) !== undefined) return undefined;
    let name: RequestId = id;
    while (this.#open.has(name)) {
      this.#renamed += 1;
      name = `${id}~${this.#renamed}`;
    }
    this.#open.set(name, { asker, id });
    const names = this.#names.get(asker) ?? new Map<RequestId, RequestId>();
    this.#names.set(asker, names.set(id, name));
    return name;
  }

  /** Forgets it: it has been answered, or will not be. */
  take(name: RequestId): PendingAsk | undefined {
    const ask = this.#open.get(name);
    this.#open.delete(name);
    if (ask !== undefined) this.#names.get(ask.asker)?.delete(ask.id);
    return ask;
  }

  nameOf(asker: AskSender, id: RequestId): RequestId | undefined {
    return this.#names.get(asker)?.get(id);
  }
}
