/**
 * The records of calls that wait for a person, beside their logs: who may answer, the answers, whether the client has
 * stopped the call, and when its outcome was first sent. An answer is inserted if absent, so the first one counts,
 * whichever process got it; the call's next owner takes it into the log with its claim.
 * A call is found by what makes another call equal to it: its caller, client, revision, workspace, tool and arguments.
 */
import { digest } from '../base/digest.ts';
import { ELICIT, isObject, type JsonObject, objectOf } from '../base/values.ts';
import {
  type CallRecord,
  type Checkpoint,
  CONTINUED,
  type Entry,
  type OpenAsk,
  type Response,
} from '../call/journal/entries.ts';
import type { IndexRecords } from '../call/task/index.ts';
import { lastOf, rowsOf, TaskIndex } from '../call/task/index.ts';
import type { KeyvCallStore } from '../checkpoint/call-store.ts';
import type { Names } from '../checkpoint/names.ts';
import {
  answerName,
  askedName,
  continuesName,
  doubtName,
  pageName,
  personName,
  roleName,
  sentName,
  stoppedName,
} from '../checkpoint/page-records.ts';

/** Calls of a person, or of a role, that are read at once for the list. */
const PAGE = 200;
/** How often. */
const PAGES = 10;
/** The newest of equal calls, among which those are that are not over: an equal one begins when the one before is. */
const MOST_EQUAL = 10;
/** How far back those are looked for whose outcome was not sent: more than ten may have begun at one moment. */
const FURTHEST = 100;

/** How long a client that is not proven may show a question, in milliseconds: some end calls after a minute. */
export const SHOWN = 45_000;
/** An answer that comes sooner is not a person's, in milliseconds. */
const AT_ONCE = 1_000;
/** How long a client's proof holds that it asks its user, in milliseconds. */
const PROOF = 30 * 86_400_000;

/** An answer, and who gave it. */
interface GivenAnswer {
  readonly response: Response;
  /** The person; `''` where the client answered for them, or its time was over. */
  readonly by: string;
  readonly route: 'page' | 'client';
  /** Milliseconds since the epoch. */
  readonly time: number;
}

/** What the records keep of it: with the digests of what was asked, and of the arguments. */
export interface KeptAnswer extends GivenAnswer {
  readonly question: string;
  readonly arguments: string;
}

/** Who may answer a call's asks, and the page on which they do. */
export interface WaitsFor {
  readonly person: string;
  readonly url: string;
  /** The server's name. */
  readonly server: string;
  /** Whether the page asked from the start; else its client did, which is not proven. */
  readonly isPage: boolean;
}

interface OpenedBy extends Pick<WaitsFor, 'person' | 'isPage'> {
  /** Of the request. */
  readonly workspace: string | undefined;
}

/** Who a request to the page is from. */
export interface Authorized {
  readonly person: string;
  readonly roles: readonly string[];
}

type Claim = Extract<Entry, { type: 'claimed' }>;

/** It waits at a checkpoint. */
export interface AtAsks {
  readonly kind: 'asks';
  /** The position of the checkpoint. */
  readonly at: number;
  readonly checkpoint: Checkpoint;
  readonly by: string | undefined;
  /** By which a turn after it has begun. */
  readonly claim: Claim | undefined;
}

/** Where a call stands. */
export type Standing =
  | { readonly kind: 'unknown' }
  | AtAsks
  /** Its first turn is not over. */
  | { readonly kind: 'runs' }
  /** Without a response it was cancelled; `isKept`: whether its log is, and was not erased. */
  | { readonly kind: 'ended'; readonly response: Response | undefined; readonly isKept: boolean };

interface BookParts {
  readonly store: Pick<KeyvCallStore, 'insert' | 'get' | 'replace' | 'read' | 'time'>;
  readonly records: IndexRecords;
  readonly names: Pick<Names, 'guessable'>;
  readonly ttl: number;
  readonly now: () => number;
  /** A page of a call that waits; each time another one for the same call. */
  urlOf(call: CallRecord): string;
  /** The server's name. */
  server(): string;
  /** An answer counts from now on. */
  answered?(call: CallRecord, answer: KeptAnswer): void;
}

/** When a call ends, or the time of the first of its asks that its tool gave one, in milliseconds since the epoch. */
export function expiryOf(expires: number, asks: readonly OpenAsk[]): number {
  return Math.min(expires, ...asks.map(({ deadline }) => deadline?.at ?? expires));
}

/** Whether an ask is one that the page has a form for. */
export function isForm({ method, params }: OpenAsk): boolean {
  return method === ELICIT && params.mode !== 'url';
}

export class WaitingCalls {
  readonly #parts: BookParts;
  readonly #byPerson: TaskIndex;
  readonly #byRole: TaskIndex;
  /** How long a row of equal calls grows, in milliseconds: a call is in the row of now, or in the one before. */
  readonly #unit: number;
  /** Called when an answer came here. */
  readonly #listeners = new Map<string, Set<() => void>>();

  constructor(parts: BookParts) {
    this.#parts = parts;
    const { records, names, ttl, now } = parts;
    this.#byPerson = new TaskIndex(records, (person) => names.guessable('asked', person), ttl, now);
    this.#byRole = new TaskIndex(records, (role) => names.guessable('asked of', role), ttl, now);
    this.#unit = Math.max(ttl, 60_000);
  }

  /**
   * The id of the call that a request begins: it follows from the request's, and only those who have the secrets know it.
   * @returns one for each secret, the one to begin it under first
   */
  idsFor({ id }: Pick<CallRecord, 'id'>): readonly [string, ...string[]] {
    const expiry = id.slice(0, id.indexOf('.'));
    const [first, ...others] = this.#parts.names.guessable('continued', id);
    const idOf = (name: string): string => `${expiry}.${name}${CONTINUED}`;
    return [idOf(first), ...others.map(idOf)];
  }

  /** The calls that a call is equal to, the oldest first. @param workspace of its request */
  async equal(call: CallRecord, workspace: string | undefined): Promise<string[]> {
    const row = Math.floor(this.#parts.now() / this.#unit);
    const rows = this.#equalNames(call, workspace).flatMap((name) =>
      [row - 1, row].map((at) => ({ name, at })),
    );
    const found = await Promise.all(rows.map(({ name, at }) => this.#rowOf(name, at)));
    return found.flat();
  }

  async #rowOf(name: string, row: number): Promise<string[]> {
    const seen = new Map<number, unknown>();
    const last = await this.#lastOf(name, row, seen);
    const ids: string[] = [];
    const { records, store } = this.#parts;
    for (let nth = last; nth >= Math.max(0, last - FURTHEST); nth -= 1) {
      const id = seen.get(nth) ?? (await records.get(this.#slot(name, row, nth)));
      if (typeof id !== 'string') continue;
      ids.unshift(id);
      if (nth <= last - MOST_EQUAL && (await store.get(sentName(id))) !== undefined) break;
    }
    return ids;
  }

  /** @param seen gets what is read */
  #lastOf(name: string, row: number, seen = new Map<number, unknown>()): Promise<number> {
    return lastOf(-1, async (nth) => {
      const id = await this.#parts.records.get(this.#slot(name, row, nth));
      seen.set(nth, id);
      return id !== undefined;
    });
  }

  /**
   * Takes an idempotency key for a call: in the row of now and in the one before, so that two processes whose clocks
   * differ meet in one.
   * @param named the id of the call that it names from now on, if that is another one
   * @returns the id of the call that has it, '' where that is gone, and whether this call took it; undefined where that has
   * other arguments
   */
  async named(
    call: CallRecord,
    key: string,
    workspace: string | undefined,
    named = call.id,
  ): Promise<{ id: string; isNew: boolean } | undefined> {
    const { names, now } = this.#parts;
    const { id, principal, params } = call;
    const what = digest([params.name ?? null, params.arguments ?? {}, workspace ?? null]);
    const row = Math.floor(now() / this.#unit);
    const known = names.guessable('idempotency-key', principal ?? null, key);
    let owner = `${named} ${what} ${id}`;
    for (const at of [row - 1, row]) {
      // In one order, whichever secret is a process's first: two in the middle of a rotation meet in each name.
      for (const name of known.toSorted()) owner = await this.#keyOwner(name, at, owner, call);
    }
    const [ownerId = '', args, by] = owner.split(' ');
    return args === what || owner === '' ? { id: ownerId, isNew: by === id } : undefined;
  }

  /** Takes one name of a key. @returns who has it: `owner`, or an earlier one; '' for one that cannot be found */
  async #keyOwner(name: string, row: number, owner: string, call: CallRecord): Promise<string> {
    const { records, now } = this.#parts;
    for (let nth = 0; ; nth += 1) {
      const slot = this.#slot(name, row, nth);
      if (await records.insert(slot, owner, this.#rowEnd(row), call)) return owner;
      const found = await records.get(slot);
      if (typeof found !== 'string') return '';
      // The row outlasts its calls: after one that is over, the key is free again.
      if (!(Number.parseInt(found, 36) <= now())) return found;
    }
  }

  /**
   * From here on calls equal to it continue it, and its person has it in their list.
   * @returns for whom it waits, and where: the same each time
   */
  async opened(call: CallRecord, by: OpenedBy): Promise<WaitsFor> {
    const waits = (await this.waitsFor(call.id)) ?? (await this.#open(call, by));
    if (by.isPage && !waits.isPage) await this.#insert(call, pageName(call.id), {});
    return waits;
  }

  async #open(call: CallRecord, { person, workspace, isPage }: OpenedBy): Promise<WaitsFor> {
    const { records, now, urlOf, server } = this.#parts;
    const { id } = call;
    const waits: WaitsFor = { person, url: urlOf(call), server: server(), isPage };
    const row = Math.floor(now() / this.#unit);
    const ends = this.#rowEnd(row);
    const [name = ''] = this.#equalNames(call, workspace);
    const isAt = (nth: number): Promise<boolean> =>
      records.insert(this.#slot(name, row, nth), id, ends, rowsOf(call, ends));
    if (!(await isAt(0))) for (let nth = await this.#lastOf(name, row); !(await isAt(nth + 1)); nth += 1);
    await this.#byPerson.addOwn(id, person, call);
    // The last one: without it all of them are made again.
    if (await this.#insert(call, personName(id), waits)) return waits;
    return (await this.waitsFor(id)) ?? waits;
  }

  /** Those who have a role have the call in their list, too. */
  async openedTo(call: CallRecord, role: string | undefined): Promise<void> {
    if (role === undefined || !(await this.#insert(call, roleName(call.id, role), {}))) return;
    await this.#byRole.addOwn(call.id, role, call);
  }

  /**
   * Whether calls with other keys continue it: the page asks, or did; or no request has gone on with it, and its client
   * has shown nothing for too long, or the page has the answer.
   */
  async isForOthers(callId: string, standing: Standing): Promise<boolean> {
    const { store } = this.#parts;
    const waits = await this.waitsFor(callId);
    if (waits?.isPage || (await store.get(pageName(callId)))) return true;
    if (standing.kind !== 'asks' || standing.claim !== undefined) return false;
    for (const { key } of standing.checkpoint.open) {
      const asked = objectOf(await store.get(askedName(callId, key)));
      if (this.time() - Number(asked.at) >= SHOWN) return true;
      if ((await this.answerTo(callId, key))?.route === 'page') return true;
    }
    return false;
  }

  /** Undefined for a call that waits for nobody. */
  async waitsFor(callId: string): Promise<WaitsFor | undefined> {
    return (await this.#parts.store.get(personName(callId))) as WaitsFor | undefined;
  }

  /** The calls of a person and of their roles whose outcome was not sent yet, the newest of each first. */
  async *of({ person, roles }: Authorized): AsyncGenerator<string> {
    const seen = new Set<string>();
    for (const [role, whose] of [person, ...roles].entries()) {
      const index = role === 0 ? this.#byPerson : this.#byRole;
      let from: string | undefined;
      for (let nth = 0; nth < PAGES; nth += 1) {
        const { ids, next } = await index.list(whose, from, PAGE);
        const sent = await Promise.all(ids.map((id) => this.#parts.store.get(sentName(id))));
        for (const id of ids.filter((id, nth) => sent[nth] === undefined && !seen.has(id))) {
          seen.add(id);
          yield id;
        }
        if (next === undefined) break;
        from = next;
      }
    }
  }

  /** @returns false where the ask has an answer already */
  async answer(call: CallRecord, ask: OpenAsk, given: GivenAnswer): Promise<boolean> {
    const kept = { ...given, question: ask.question, arguments: digest(call.params.arguments ?? {}) };
    const isFirst = await this.#insert(call, answerName(call.id, ask.key), kept);
    if (isFirst && !('error' in given.response)) this.#parts.answered?.(call, kept);
    this.#wake(call.id);
    return isFirst;
  }

  async answerTo(callId: string, key: string): Promise<KeptAnswer | undefined> {
    const found = await this.#parts.store.get(answerName(callId, key));
    return isObject(found) && 'response' in found ? (found as unknown as KeptAnswer) : undefined;
  }

  /** Whether its person, or the client beside the page, has answered one of its asks. */
  async isAnswered({ checkpoint: { call, open } }: AtAsks): Promise<boolean> {
    const answers = await Promise.all(open.map(({ key }) => this.answerTo(call.id, key)));
    return answers.some((answer) => answer !== undefined);
  }

  /** A request that did not begin the call continues it, so that an answer to that request is one to this call. */
  async continues(request: CallRecord, call: CallRecord): Promise<void> {
    if (!this.idsFor(request).includes(call.id))
      await this.#insert(call, continuesName(request.id), { id: call.id });
  }

  /** The ids that the call of a request may have. */
  async continuedBy(requestId: string): Promise<string[]> {
    const found = await this.#parts.store.get(continuesName(requestId));
    return [...this.idsFor({ id: requestId }), ...(isObject(found) ? [String(found.id)] : [])];
  }

  /** Milliseconds since the epoch, by the clock that processes share. */
  time(): number {
    return this.#parts.store.time();
  }

  /** When the client was asked first, by that clock: now, where it was not. */
  async asked(call: CallRecord, { key }: OpenAsk): Promise<number> {
    const [name, at] = [askedName(call.id, key), this.time()];
    if (await this.#insert(call, name, { at })) return at;
    const found = await this.#parts.store.get(name);
    return isObject(found) ? Number(found.at) : at;
  }

  /**
   * The client has not asked its user: the page does.
   * @param isForm whether the client was sent the form, and may send its user's answer later
   * @returns false where that was known
   */
  doubt(call: CallRecord, { key }: OpenAsk, isForm: boolean): Promise<boolean> {
    return this.#insert(call, doubtName(call.id, key), { isForm });
  }

  async doubtOf({ id }: CallRecord, { key }: OpenAsk): Promise<{ readonly isForm: boolean } | undefined> {
    return (await this.#parts.store.get(doubtName(id, key))) as { isForm: boolean } | undefined;
  }

  /**
   * Whether a client's answer may be its user's: at once only one that accepts. With content, after more than a second,
   * it has shown that it asks its user.
   * @param had how long it had the question, in milliseconds
   */
  async believes(call: CallRecord, { action, content }: JsonObject, had: number): Promise<boolean> {
    const { records, now } = this.#parts;
    const isAccepted = action === 'accept';
    if (had < AT_ONCE) return isAccepted;
    const [slot] = this.#proofs(call, 0);
    if (slot !== undefined && isAccepted && isObject(content) && Object.keys(content).length > 0)
      await records.insert(slot.name, { at: now() }, slot.ends, rowsOf(call, slot.ends)).catch(() => {});
    return true;
  }

  async isProven(call: CallRecord): Promise<boolean> {
    const { records, now } = this.#parts;
    for (const { name } of [...this.#proofs(call, 0), ...this.#proofs(call, 1)]) {
      const found = await records.get(name);
      if (isObject(found) && now() - Number(found.at) <= PROOF) return true;
    }
    return false;
  }

  /** The names of a proof in the row of now, or one before. */
  #proofs({ principal, client }: CallRecord, before: number): { name: string; ends: number }[] {
    const { names, now } = this.#parts;
    const ends = (Math.floor(now() / PROOF) - before + 2) * PROOF;
    return names
      .guessable('proven', principal ?? null, String(client.info.name ?? ''))
      .map((name) => ({ name: `${ends.toString(36)}.proven.${name}`, ends }));
  }

  #wake(callId: string): void {
    for (const listener of this.#listeners.get(callId) ?? []) listener();
  }

  /** Calls the function when an answer comes to this process, or the call is stopped here. @returns ends that */
  listen(callId: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(callId) ?? new Set();
    this.#listeners.set(callId, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#listeners.delete(callId);
    };
  }

  /** Whether its client has cancelled it, and not called it again. */
  async isStopped(callId: string): Promise<boolean> {
    const found = await this.#parts.store.get(stoppedName(callId));
    return isObject(found) && found.is === true;
  }

  /** Its client has cancelled it. Another request that waits for it resumes it. */
  async stop({ id, expires }: CallRecord): Promise<void> {
    await this.#parts.store.replace(stoppedName(id), { is: true }, expires);
    this.#wake(id);
  }

  /** It was called again. */
  async resume({ id, expires }: CallRecord): Promise<void> {
    if (await this.isStopped(id)) await this.#parts.store.replace(stoppedName(id), { is: false }, expires);
  }

  /** When its outcome was sent first: now, where it was not. */
  async sent({ id, expires }: Pick<CallRecord, 'id' | 'expires'>): Promise<{ at: number; isFirst: boolean }> {
    const { store, now } = this.#parts;
    const [name, at] = [sentName(id), now()];
    if (await store.insert(name, { at }, expires)) return { at, isFirst: true };
    const found = await store.get(name);
    return { at: isObject(found) ? Number(found.at) : at, isFirst: false };
  }

  /** Reads a call's log. */
  async standing(callId: string): Promise<Standing> {
    const { store } = this.#parts;
    let standing: Standing = { kind: 'unknown' };
    for (let at = 0; ; at += 1) {
      // The caller is not known before; no stranger's call waits for a person.
      const entry = await store.read(callId, at, callId);
      if (entry === undefined) return standing;
      standing = after(standing, entry, at);
      if (standing.kind === 'ended') return standing;
    }
  }

  /** Looks whether a turn after a checkpoint has begun, or the call is over. */
  async hasGoneOn({ at, checkpoint }: AtAsks): Promise<boolean> {
    for (let next = at + 1; ; next += 1) {
      const entry = await this.#parts.store.read(checkpoint.call.id, next, checkpoint.call.principal);
      if (entry === undefined || MOVES.has(entry.type)) return entry !== undefined;
    }
  }

  /** Inserts a record of a call, which goes with it. @returns false where there is one */
  #insert(call: CallRecord, name: string, value: JsonObject | WaitsFor | KeptAnswer): Promise<boolean> {
    return this.#parts.store.insert(name, value, call.expires, { holder: call });
  }

  #equalNames(
    { principal, client, revision, params }: CallRecord,
    workspace: string | undefined,
  ): readonly string[] {
    const where = [client.info.name ?? null, revision, workspace ?? null];
    const what = digest([...where, params.name ?? null, params.arguments ?? {}]);
    return this.#parts.names.guessable('equal', principal ?? null, what);
  }

  #rowEnd(row: number): number {
    return (row + 2) * this.#unit;
  }

  #slot(name: string, row: number, nth: number): string {
    return `${this.#rowEnd(row).toString(36)}.equal.${name}:${nth}`;
  }
}

/** Entries behind a checkpoint that leave it behind. */
const MOVES: ReadonlySet<Entry['type']> = new Set(['claimed', 'ended', 'cancelled']);

function after(before: Standing, entry: Entry, at: number): Standing {
  switch (entry.type) {
    case 'suspended':
      return { kind: 'asks', at, checkpoint: entry.checkpoint, by: entry.by, claim: undefined };
    case 'ended':
      return { kind: 'ended', response: entry.response, isKept: true };
    case 'cancelled':
      return { kind: 'ended', response: undefined, isKept: at > 0 && entry.isErased !== true };
    default:
      // A step that runs beside the asks is recorded behind them, and leaves them open.
      // A second claim of the same turn has the first one's answers.
      if (before.kind === 'asks')
        return entry.type === 'claimed' ? { ...before, claim: before.claim ?? entry } : before;
      return before.kind === 'unknown' ? { kind: 'runs' } : before;
  }
}
