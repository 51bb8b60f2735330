/**
 * Rounds of a tool that returns its asks (`inputRequired`) and is run again with the answers, instead of awaiting them.
 * The returned value is recorded as a step's is, at a path that no step has. A replay begins at the last round: earlier
 * ones are done, and their author does not expect them to run again.
 */
import { isObject, type JsonObject } from '../../base/values.ts';
import type { Completion } from '../journal/entries.ts';
import { type DrawPlace, isOnce, isShed, SHED } from './drawn.ts';

const ROUND = '/round#';
const NONE: ReadonlyMap<string, number> = new Map();

export class Rounds {
  /** The value that the last round returned. */
  readonly last: JsonObject | undefined;
  /** How many completions belong to rounds that are over. */
  readonly past: number;
  /** How many steps of each name they had. */
  readonly names: ReadonlyMap<string, number>;
  #count: number;
  /** How often the tool offered to be given up (`shed`). */
  #sheds: number;

  /** @param isPast whether all of them are done, not those of rounds that are over alone */
  constructor(completions: readonly Completion[], isPast = false) {
    this.past = completions.findLastIndex(isRound) + 1;
    const before = completions.slice(0, this.past);
    const paths = before.flatMap((done) => (done.kind === 'step' ? [done.path] : []));
    const round = before.at(-1);
    const outcome = round?.kind === 'step' ? round.outcome : {};
    this.last = 'value' in outcome && isObject(outcome.value) ? outcome.value : undefined;
    this.#sheds = (isPast ? completions : before).filter(
      (done) => done.kind === 'step' && isShed(done.path),
    ).length;
    this.#count = before.filter(isRound).length;
    const names = new Map<string, number>();
    for (const path of paths) {
      const name = path.replace(/#\d+$/, '');
      names.set(name, (names.get(name) ?? 0) + 1);
    }
    this.names = names.size > 0 ? names : NONE;
  }

  /** The path of the round that ends now. */
  next(): string {
    this.#count += 1;
    return `${ROUND}${this.#count}`;
  }

  /** The path of the next offer to be given up. */
  nextShed(): string {
    this.#sheds += 1;
    return `${SHED}#${this.#sheds}`;
  }

  /** Where something is drawn: a round's first value at a place is not the one of the round before. */
  placeOf(place: DrawPlace): DrawPlace {
    return this.#count === 0 ? place : { ...place, site: `${this.#count}:${place.site}` };
  }
}

/** Whether it is the end of a round. */
export function isRound(done: Completion): boolean {
  return done.kind === 'step' && done.path.startsWith(ROUND);
}

/** How many answers, steps and rounds a call has recorded, without what the proxy noted of its requests to the server. */
export function progressOf(completions: readonly Completion[]): number {
  return completions.filter((done) => done.kind !== 'step' || isRound(done) || !isOnce(done.path)).length;
}
