/**
 * The values that a tool gets from the clock, from chance and from the network while `mcp-await/record` is imported,
 * recorded so that a replay gets the same. A value's identity is the place that drew it (the call site, and its branch)
 * with its ordinal there: never a global ordinal, since branches that wait for something unrecorded come in another
 * order each time.
 * A value without a record is drawn anew; nothing here ever fails a tool.
 *
 * With `mcp-await/record` a frame records its tool's drawn values (`src/call/frame/drawn.ts`) by the place in the
 * code. A count over the whole call would shift with the order of branches, and a count of promises with caches that
 * differ between processes. A stack does not: V8's continue across `await` and hold the index of a branch in
 * `Promise.all`, `allSettled` and `any`. Node's own frames are left out (they depend on the phase of the event
 * loop), and so are those below the entry of the call (they differ between a first run and a replay). In the journal
 * that is `now server.ts:41:20~x1Yz8q[1.0]qR5tAb`: the kind, the line, a digest of its callers, the branches from
 * the innermost out, a digest of the awaiting functions.
 *
 * Values cannot wait for a store, so they are part of the next checkpoint; in a turn that another process could take
 * over, an entry of their own comes before each step that runs. A `fetch` is a step whose path begins with `/`,
 * which no step's name can; it is exempt from divergence, and one that still runs when its tool is done ends
 * unrecorded.
 */
import { appendDrawn, type DrawnValue, type DrawnValues } from '../journal/drawn.ts';
import type { Completion } from '../journal/entries.ts';

/** Where something is drawn. */
export interface DrawPlace {
  /** The kind, the line and a digest of its callers: `now server.ts:41:20~x1Yz`; or the request. */
  readonly site: string;
  /** The branches it is in, the innermost first, and a digest of who awaits it: `[1.0]qR5t`. */
  readonly branch: string;
}

/** The first character of journal paths of records that are like steps but are not: a step's name has no `/`. */
const ONCE = '/';

/** The path of a place at which a call was shed, with its ordinal. */
export const SHED = `${ONCE}shed`;

export function isShed(path: string): boolean {
  return path.startsWith(SHED);
}

export function isOnce(path: string): boolean {
  return path.startsWith(ONCE);
}

/** Bytes that a value takes in the journal, about. */
const sizeOf = (value: DrawnValue): number => String(value).length + 4;

export class Drawn {
  // Most calls draw nothing, and a call is small while it is parked: its maps are made when they are needed.
  #values: Map<string, DrawnValue[]> | undefined;
  readonly #places = new Places((joined, others) => !joined && !others);
  /** A request names itself, and must not be sent twice: only a branch that is surely another one is. */
  readonly #once = new Places((joined, others) => !joined || !others);
  /** Values that are in no journal entry yet. */
  #unwritten: Map<string, DrawnValue[]> | undefined;
  readonly #maxBytes: number;
  #bytes = 0;

  /** @param paths the paths of records that are like steps */
  constructor(recorded: DrawnValues, completions: readonly Completion[], maxBytes: number) {
    this.#maxBytes = maxBytes;
    for (const [key, values] of Object.entries(recorded)) {
      this.#values ??= new Map();
      this.#values.set(key, [...values]);
      this.#places.expect(key, values.length);
      this.#bytes += values.reduce<number>((sum, value) => sum + sizeOf(value), key.length);
    }
    for (const done of completions)
      if (done.kind === 'step' && isOnce(done.path)) this.#once.expect(done.path.replace(/#\d+$/, ''), 1);
  }

  /** Whether more was drawn than may be kept: such a call can no longer be suspended. */
  get isFull(): boolean {
    return this.#bytes > this.#maxBytes;
  }

  /** The value recorded for this place, or a fresh one, which is recorded. */
  draw(place: DrawPlace, fresh: () => DrawnValue): DrawnValue {
    if (this.isFull) return fresh();
    const { key, nth } = this.#places.next(place);
    const recorded = this.#values?.get(key)?.[nth];
    if (recorded !== undefined) return recorded;
    const value = fresh();
    this.#values ??= new Map();
    this.#unwritten ??= new Map();
    this.#bytes += sizeOf(value) + (this.#values.has(key) ? 0 : key.length);
    appendDrawn(this.#values, key, [value]);
    appendDrawn(this.#unwritten, key, [value]);
    return value;
  }

  /** The path of something that is done once, unique in its call; the recorded one where there is one. */
  pathOf({ site, branch }: DrawPlace): string {
    const { key, nth } = this.#once.next({ site: `${ONCE}${site}`, branch });
    return `${key}#${nth + 1}`;
  }

  /** For a checkpoint: everything, after which nothing is unwritten. */
  all(): { drawn?: DrawnValues } {
    return this.#values === undefined ? {} : { drawn: Object.fromEntries(this.#values) };
  }

  /** The values for the next entry; they count as written from here on. */
  takeUnwritten(): { drawn?: DrawnValues } {
    const values = this.#unwritten;
    if (values === undefined) return {};
    this.#unwritten = undefined;
    return { drawn: Object.fromEntries(values) };
  }
}

/** Counts how often each place was reached, and finds the recorded place that it is. */
class Places {
  #recorded: Map<string, number> | undefined;
  #used: Map<string, number> | undefined;
  readonly #mayBe: (joined: boolean, others: boolean) => boolean;

  /** @param mayBe whether a place may be one recorded in other branches, by whether each is in any */
  constructor(mayBe: (joined: boolean, others: boolean) => boolean) {
    this.#mayBe = mayBe;
  }

  expect(key: string, more: number): void {
    this.#recorded ??= new Map();
    this.#recorded.set(key, (this.#recorded.get(key) ?? 0) + more);
  }

  next({ site, branch }: DrawPlace): { key: string; nth: number } {
    const own = `${site}${branch}`;
    const key = this.#left(own) > 0 ? own : (this.#onlyOther(site, branch) ?? own);
    this.#used ??= new Map();
    const nth = this.#used.get(key) ?? 0;
    this.#used.set(key, nth + 1);
    return { key, nth };
  }

  /**
   * V8 knows the awaiting function only once there is one, so the outer part of a stack may be missing, by timing. With
   * one candidate of this site the match is certain.
   */
  #onlyOther(site: string, branch: string): string | undefined {
    const others = [...(this.#recorded?.keys() ?? [])].filter(
      (key) =>
        key.startsWith(`${site}[`) &&
        this.#left(key) > 0 &&
        this.#mayBe(isJoined(branch), isJoined(key.slice(site.length))),
    );
    return others.length === 1 ? others[0] : undefined;
  }

  #left(key: string): number {
    return (this.#recorded?.get(key) ?? 0) - (this.#used?.get(key) ?? 0);
  }
}

function isJoined(branch: string): boolean {
  return !branch.startsWith('[]');
}
