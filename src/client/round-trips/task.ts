/**
 * A task that a call has become, from its creation to its outcome (SEP-2663; the drafts' on 2025-11-25's tasks).
 *
 * Polled at the server's pace. Each of its asks goes to the client once, by its key; polling continues meanwhile, so
 * that asks which the server withdraws leave the user's screen.
 */
import type { JsonObject } from '../../base/values.ts';
import { pause, type RpcAnswer } from '../message.ts';
import type { ClientDialect } from './dialect.ts';
import { asksIn, type Finished, malformed, outcomeOf, readAnswer } from './reading.ts';
import { Refused, Round, type RoundPorts } from './round.ts';
import type { InputRequests } from './saved-call.ts';

/** Milliseconds between two questions, where the server names none; SDK v1's own. */
const INTERVAL = 1_000;
/** However often a server wants to be asked. */
const LEAST = 10;

/** @param said milliseconds, as the server names them */
export function pollInterval(said: unknown): number {
  return typeof said === 'number' && said >= 0 ? Math.max(said, LEAST) : INTERVAL;
}

export interface TaskPorts extends RoundPorts {
  readonly dialect: ClientDialect;
  readonly taskId: string;
  /** Aborted once no caller waits. */
  readonly signal: AbortSignal;
  /** `tasks/get` and the like, with the task's id. */
  request(method: string): Promise<RpcAnswer>;
  /** Answers to the task's asks. */
  respond(message: JsonObject & { readonly method?: string }): Promise<void>;
}

export class TaskFollower {
  readonly #ports: TaskPorts;
  readonly #rounds = new Set<Round>();
  /** Keys given to the client; an answered ask is not given again while the server still lists it. */
  #known = new Set<string>();
  #wake: (() => void) | undefined;

  constructor(ports: TaskPorts) {
    this.#ports = ports;
  }

  get taskId(): string {
    return this.#ports.taskId;
  }

  /**
   * @param created the task as the server first described it; its id alone where the rest is unknown
   * @param asked the asks that are known already
   * @throws Refused when the client's user will not answer, or the server refuses the answer
   */
  async follow(created: JsonObject, asked: InputRequests = {}): Promise<Finished> {
    this.#ask(asked);
    let task = created;
    for (;;) {
      if (task.status !== undefined) {
        const outcome = await this.#look(task);
        if (outcome !== undefined) {
          this.giveUp('The task has ended');
          return outcome;
        }
        await this.#rest(task);
        this.#ports.signal.throwIfAborted();
        await this.#respond();
      }
      const answer = await this.#ports.request('tasks/get');
      if ('error' in answer) return { error: answer.error };
      task = { status: 'working', ...answer.result };
    }
  }

  giveUp(reason: string): void {
    for (const round of this.#rounds) round.giveUp(reason);
    this.#rounds.clear();
  }

  /** The outcome in a state of the task; undefined while it runs. */
  async #look(task: JsonObject): Promise<Finished | undefined> {
    const { detailed } = this.#ports.dialect.tasks;
    switch (String(task.status).toLowerCase()) {
      case 'input_required':
        if (!detailed) return this.#fetch(true);
        // A task's creation does not list them.
        if (task.inputRequests !== undefined) this.#keep(asksIn(task.inputRequests));
        return undefined;
      case 'completed':
      case 'failed':
        if (!detailed) return this.#fetch(false);
        return task.result === undefined && task.error === undefined ? undefined : outcomeOf(task);
      case 'cancelled': {
        const why = typeof task.statusMessage === 'string' ? `: ${task.statusMessage}` : '.';
        return { error: { code: -32000, message: `The task was cancelled${why}` } };
      }
      default:
        this.#keep({});
        return undefined;
    }
  }

  /** Puts new asks to the client, and withdraws those that the server no longer lists. */
  #keep(asked: InputRequests): void {
    for (const round of this.#rounds) {
      for (const key of round.keys) if (!Object.hasOwn(asked, key)) round.withdraw(key);
    }
    this.#known = new Set([...this.#known].filter((key) => Object.hasOwn(asked, key)));
    this.#ask(Object.fromEntries(Object.entries(asked).filter(([key]) => !this.#known.has(key))));
  }

  #ask(requests: InputRequests): void {
    const keys = Object.keys(requests);
    if (keys.length === 0) return;
    for (const key of keys) this.#known.add(key);
    // A task has an end of its own for a user who will not answer.
    const round = new Round(this.#ports, requests, false, () => this.#wake?.());
    this.#rounds.add(round);
    round.begin();
  }

  /** Reads a draft's asks by `tasks/result`; without open asks that request waits for the outcome. */
  async #fetch(mayAsk: boolean): Promise<Finished | undefined> {
    if (mayAsk && this.#rounds.size > 0) return undefined;
    const reading = readAnswer(await this.#ports.request('tasks/result'), this.#ports.dialect, false);
    if (reading.kind === 'complete') return reading.outcome;
    if (!mayAsk) throw malformed('input_required for a task that is over');
    if (reading.kind === 'input_required') this.#ask(reading.input.inputRequests ?? {});
    return undefined;
  }

  /** Waits until the server's polling interval is over, or there is a message to send. */
  async #rest(task: JsonObject): Promise<void> {
    if ([...this.#rounds].some(({ outcome }) => outcome !== undefined)) return;
    const interval = pollInterval(task[this.#ports.dialect.tasks.interval]);
    const nap = new AbortController();
    const wake = (): void => nap.abort();
    this.#wake = wake;
    this.#ports.signal.addEventListener('abort', wake);
    await pause(interval, nap.signal);
    this.#ports.signal.removeEventListener('abort', wake);
    this.#wake = undefined;
  }

  async #respond(): Promise<void> {
    const { dialect, taskId } = this.#ports;
    for (const round of this.#rounds) {
      const { outcome } = round;
      if (outcome === undefined) continue;
      this.#rounds.delete(round);
      if (outcome instanceof Refused) throw outcome;
      // Unless everything in it was taken back.
      if (Object.keys(outcome).length > 0) {
        await this.#ports.respond(dialect.tasks.respond(taskId, outcome));
      }
    }
  }
}
