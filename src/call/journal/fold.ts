/** A journal read from its first entry on: the state of a call at a position, for processes that do not run it. */
import { addDrawn, type DrawnValues } from './drawn.ts';
import {
  CANCELLED,
  type CallRecord,
  type Completion,
  type Entry,
  type OpenAsk,
  type Response,
} from './entries.ts';

export class Folding {
  /** The position of the last entry that was taken in; -1 before the first. */
  at = -1;
  call: CallRecord | undefined;
  readonly completions: Completion[] = [];
  /** Asks that went out and have no answer, by key. */
  readonly open = new Map<string, OpenAsk>();
  asked = 0;
  turn = 0;
  drawn: { readonly drawn?: DrawnValues } = {};
  /** Since when it continues without its request, in milliseconds since the epoch; undefined while it does not. */
  detached: number | undefined;
  /** Whether it suspended and waits for its token to come back. */
  suspended = false;
  /** The digest of the answers, in the claim of its present turn. */
  sent = '';
  /** Whether its owner gave it up: it may be taken over without waiting for the lease. */
  left = false;
  cancelled = false;
  response: Response | undefined;
  /** The process that runs it, where others can reach it. */
  by: string | undefined;
  /** When it last changed in a way that its client can see, in milliseconds since the epoch. */
  updated = 0;

  take(entry: Entry): void {
    this.at += 1;
    this.left = entry.type === 'left';
    if ('when' in entry && entry.when !== undefined) this.updated = Math.max(this.updated, entry.when);
    switch (entry.type) {
      case 'called':
        this.call = entry.call;
        this.by = entry.by;
        if (entry.isTask) this.#detach(entry.call.created);
        break;
      case 'detached':
        this.by = entry.by;
        this.#detach(entry.when);
        break;
      case 'asked':
        this.asked += 1;
        // It may be asked again under another key, or in other words.
        for (const [key, { place }] of this.open) if (place === entry.ask.place) this.open.delete(key);
        this.open.set(entry.ask.key, entry.ask);
        break;
      case 'withdrawn':
        this.#withdraw(entry.key);
        break;
      case 'completed':
        this.#complete(entry.completion);
        break;
      case 'drawn':
        this.drawn = addDrawn(this.drawn.drawn, entry.drawn);
        break;
      case 'claimed':
        // A second claim of the same turn carries the same answers.
        for (const answer of entry.answers) this.#complete(answer);
        this.suspended = false;
        this.sent = entry.sent;
        break;
      case 'suspended':
        this.#suspend(entry);
        break;
      case 'cancelled':
        this.cancelled = true;
        this.response = CANCELLED;
        break;
      case 'ended':
        this.response = entry.response;
        break;
      default:
        break;
    }
  }

  #detach(when: number): void {
    this.detached = when;
    this.updated = Math.max(this.updated, when);
    this.suspended = false;
  }

  #withdraw(key: string): void {
    const ask = this.open.get(key);
    if (ask !== undefined) this.open.set(key, { ...ask, withdrawn: true });
  }

  #complete(completion: Completion): void {
    const { kind } = completion;
    if (
      kind === 'answer' &&
      this.completions.some((done) => done.kind === kind && done.key === completion.key)
    )
      return;
    this.completions.push(completion);
    if (kind === 'answer') this.open.delete(completion.key);
  }

  #suspend({ checkpoint }: Extract<Entry, { type: 'suspended' }>): void {
    this.call = checkpoint.call;
    this.completions.splice(0, this.completions.length, ...checkpoint.completions);
    this.open.clear();
    for (const ask of checkpoint.open) this.open.set(ask.key, ask);
    this.asked = checkpoint.asked;
    this.turn = checkpoint.turn;
    this.drawn = addDrawn(undefined, checkpoint.drawn);
    this.suspended = true;
  }
}
