/** A journal read from its first entry on: the state of a call at a position, for processes that do not run it. */
import { addDrawn, type DrawnValues } from './drawn.ts';
import {
  CANCELLED,
  type CallRecord,
  type Completion,
  type Entry,
  isReceived,
  type OpenAsk,
  type Response,
  withoutArguments,
} from './entries.ts';

export class Folding {
  /** The position of the last entry that was taken in; -1 before the first. */
  at = -1;
  /** The position of the last entry of its owner: what others received for it is no sign of life. */
  moved = -1;
  /** How many of the last completions came in since then: no owner has acted on them. */
  fresh = 0;
  /** Without its arguments, unless this is whole. */
  call: CallRecord | undefined;
  /** Answers and steps, if this is whole. */
  readonly completions: Completion[] = [];
  /** Asks that went out and have no answer, by key. */
  readonly open = new Map<string, OpenAsk>();
  asked = 0;
  turn = 0;
  /** How often owners wrote an ask, by its key: one that takes the call over writes its open asks again. */
  readonly #times = new Map<string, number>();
  /** Reports of progress, by the ask's key. */
  readonly #reports = new Map<string, number>();
  /** The keys of asks that were answered. */
  readonly #answered = new Set<string>();
  readonly #isWhole: boolean;
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

  /** @param isWhole whether it has what the call's next owner needs, which may be long; others hold none of that */
  constructor(isWhole = false) {
    this.#isWhole = isWhole;
  }

  take(entry: Entry): void {
    this.at += 1;
    if (!isReceived(entry)) {
      this.moved = this.at;
      this.fresh = 0;
      this.left = entry.type === 'left';
    }
    if ('when' in entry && entry.when !== undefined) this.updated = Math.max(this.updated, entry.when);
    switch (entry.type) {
      case 'called':
        this.#named(entry.call);
        this.by = entry.by;
        if (entry.isTask) this.#detach(entry.call.created);
        break;
      case 'detached':
        this.by = entry.by;
        this.#detach(entry.when);
        break;
      case 'asked':
        if (!this.open.has(entry.ask.key)) this.asked += 1;
        // It may be asked again under another key, or in other words.
        for (const [key, { place }] of this.open) if (place === entry.ask.place) this.open.delete(key);
        this.open.set(entry.ask.key, entry.ask);
        this.#times.set(entry.ask.key, this.timesAsked(entry.ask.key) + 1);
        break;
      case 'withdrawn':
        this.#mark(entry.key, 'withdrawn');
        break;
      case 'refused':
        this.#mark(entry.key, 'refused');
        break;
      case 'completed':
        this.#complete(entry.completion);
        break;
      case 'reported':
        this.#reports.set(entry.key, this.reports(entry.key) + 1);
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
        this.#ended(CANCELLED);
        break;
      case 'ended':
        this.#ended(entry.response);
        break;
      default:
        break;
    }
  }

  /** Nothing is asked any more, and nothing is read, or written, behind the end. */
  #ended(response: Response): void {
    this.response = response;
    this.open.clear();
  }

  #detach(when: number): void {
    this.detached = when;
    this.updated = Math.max(this.updated, when);
    this.suspended = false;
  }

  #mark(key: string, as: 'withdrawn' | 'refused'): void {
    const ask = this.open.get(key);
    if (ask !== undefined) this.open.set(key, { ...ask, [as]: true });
  }

  /** How often its client reported progress on an ask. */
  reports(key: string): number {
    return this.#reports.get(key) ?? 0;
  }

  timesAsked(key: string): number {
    return this.#times.get(key) ?? 0;
  }

  /** Whether an ask of this key was answered. */
  isAnswered(key: string): boolean {
    return this.#answered.has(key);
  }

  #named(call: CallRecord): void {
    this.call = this.#isWhole ? call : withoutArguments(call);
  }

  #complete(completion: Completion): void {
    if (completion.kind === 'answer') {
      if (this.isAnswered(completion.key)) return;
      this.#answered.add(completion.key);
      this.open.delete(completion.key);
    }
    if (this.#isWhole) this.completions.push(completion);
    if (this.moved < this.at) this.fresh += 1;
  }

  #suspend({ checkpoint }: Extract<Entry, { type: 'suspended' }>): void {
    this.#named(checkpoint.call);
    this.completions.length = 0;
    this.#answered.clear();
    for (const completion of checkpoint.completions) this.#complete(completion);
    this.open.clear();
    for (const ask of checkpoint.open) this.open.set(ask.key, ask);
    this.asked = checkpoint.asked;
    this.turn = checkpoint.turn;
    this.drawn = addDrawn(undefined, checkpoint.drawn);
    this.suspended = true;
  }
}
