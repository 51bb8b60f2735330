/**
 * The asks of one round: put to the client as requests, until all of them are answered.
 * On these wires an answer is a result. An error of the client's handler counts as a user who does not answer: an
 * elicitation has a result for that (`cancel`), any other ask ends the round.
 */
import { ELICIT, type JsonObject } from '../../base/values.ts';
import type { AskSender, Asks } from '../asks.ts';
import type { RequestId, Rpc, RpcAnswer } from '../message.ts';
import type { InputRequests } from './saved-call.ts';

export interface RoundPorts {
  readonly asks: Asks;
  readonly deliver: (message: Rpc) => void;
  readonly report: (error: Error) => void;
}

/** Results by the keys of the asks. */
export type Responses = Readonly<Record<string, JsonObject>>;

/** The client's refusal to answer: its handler's error, passed on to the caller. */
export class Refused extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor({ code, message, data }: { code: number; message: string; data?: unknown }) {
    super(message);
    this.name = 'Refused';
    this.code = code;
    this.data = data;
  }
}

export class Round implements AskSender {
  readonly #ports: RoundPorts;
  readonly #requests: InputRequests;
  readonly #cancels: boolean;
  readonly #onSettled: () => void;
  readonly #responses = new Map<string, JsonObject>();
  /** The keys that wait for an answer. */
  readonly #open: Set<string>;
  #outcome: Responses | Refused | undefined;

  /**
   * @param cancels whether an elicitation that the client refuses is answered with `cancel`
   * @param onSettled called once there is an outcome; not where the round was given up
   */
  constructor(ports: RoundPorts, requests: InputRequests, cancels: boolean, onSettled: () => void) {
    this.#ports = ports;
    this.#requests = requests;
    this.#cancels = cancels;
    this.#onSettled = onSettled;
    this.#open = new Set(Object.keys(requests));
  }

  /** Gives the asks to the client. */
  begin(): void {
    for (const [key, { method, params }] of Object.entries(this.#requests)) {
      // An answer to one may end the round before the next is asked.
      const id = this.#open.has(key) ? this.#ports.asks.open(this, key) : undefined;
      if (id === undefined) continue;
      // SDK v1 wants an id of every URL it is to open; 2026-07-28 has none.
      const lacksId = method === ELICIT && params?.mode === 'url' && params.elicitationId === undefined;
      const named = lacksId ? { ...params, elicitationId: crypto.randomUUID() } : params;
      const given = named === undefined ? {} : { params: named };
      this.#ports.deliver({ jsonrpc: '2.0', id, method, ...given });
    }
    this.#check();
  }

  get keys(): string[] {
    return Object.keys(this.#requests);
  }

  get outcome(): Responses | Refused | undefined {
    return this.#outcome;
  }

  async answer(id: RequestId, answer: RpcAnswer): Promise<void> {
    const key = String(id);
    if (!this.#open.delete(key)) return;
    if ('result' in answer) this.#responses.set(key, answer.result);
    else if (this.#cancels && this.#requests[key]?.method === ELICIT) {
      this.#ports.report(new Error(`An elicitation was answered 'cancel': ${answer.error.message}`));
      this.#responses.set(key, { action: 'cancel' });
    } else {
      this.#settle(new Refused(answer.error));
      this.giveUp('Another ask of the same call was refused');
      return;
    }
    this.#check();
  }

  /** The server does without this answer. */
  withdraw(id: RequestId): void {
    const key = String(id);
    if (!this.#open.delete(key)) return;
    this.#takeBack(key, 'The server no longer asks this');
    this.#check();
  }

  /** Withdraws the open asks from the user's screen. */
  giveUp(reason: string): void {
    for (const key of this.#open) this.#takeBack(key, reason);
    this.#open.clear();
  }

  #takeBack(key: string, reason: string): void {
    const requestId = this.#ports.asks.nameOf(this, key);
    if (requestId === undefined) return;
    this.#ports.asks.take(requestId);
    this.#ports.deliver({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, reason } });
  }

  #check(): void {
    if (this.#open.size === 0) this.#settle(Object.fromEntries(this.#responses));
  }

  #settle(outcome: Responses | Refused): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = outcome;
    this.#onSettled();
  }
}
