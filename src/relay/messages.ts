/**
 * Messages over a relay, sealed: they hold answers and credentials. Whoever can read and write the relay can neither
 * forge one, nor send one to another process or a second time: each names its receiver and its place among the messages
 * of its sender.
 */
import { badToken, isObject, type JsonObject, keepNewest } from '../base/values.ts';

/** How long a message is good for, in milliseconds; clocks may differ by as much. */
const LIFE = 300_000;
/** How far a message may be behind the newest of its sender. */
const WINDOW = 4_096;
/** Senders whose messages are remembered. */
const SENDERS = 1_000;

interface Sealing {
  seal(purpose: 'relay', body: JsonObject, expires: number, longest: number): string;
  open(purpose: 'relay', token: string, longest: number): Promise<JsonObject>;
}

export interface Messages {
  /** @param to the name that it is sent to */
  readonly seal: (message: JsonObject, to: string) => string;
  /**
   * @param at the name that it was received under
   * @throws AwaitError `bad-token` where it is forged, expired, another's, or was received before
   */
  readonly open: (text: string, at: string) => Promise<JsonObject>;
}

export function sealedMessages(sealing: Sealing, now: () => number): Messages {
  const from = crypto.randomUUID();
  const received = new ReceivedNumbers();
  let sent = 0;
  return {
    seal: (message, to) => {
      sent += 1;
      return sealing.seal('relay', { to, from, nth: sent, message }, now() + LIFE, Infinity);
    },
    open: async (text, at) => {
      const { to, from: sender, nth, message } = await sealing.open('relay', text, Infinity);
      if (to !== at) throw badToken('the message was for another process');
      if (typeof sender !== 'string' || typeof nth !== 'number' || !isObject(message))
        throw badToken('the message has no sender');
      if (!received.isNew(sender, nth)) throw badToken('the message was received before');
      return message;
    },
  };
}

/** The newest messages of each sender, by their numbers. They may arrive out of order, within a window. */
class ReceivedNumbers {
  readonly #senders = new Map<string, { newest: number; readonly numbers: Set<number> }>();

  isNew(sender: string, nth: number): boolean {
    const known = this.#senders.get(sender) ?? { newest: 0, numbers: new Set<number>() };
    this.#senders.delete(sender);
    this.#senders.set(sender, known);
    keepNewest(this.#senders, SENDERS);
    if (nth <= known.newest - WINDOW || known.numbers.has(nth)) return false;
    known.numbers.add(nth);
    known.newest = Math.max(known.newest, nth);
    for (const old of known.numbers) {
      if (known.numbers.size <= WINDOW) break;
      if (old <= known.newest - WINDOW) known.numbers.delete(old);
      else break;
    }
    return true;
  }
}
