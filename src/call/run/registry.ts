/**
 * Where the runs of this process are: in a turn, waiting at a checkpoint, or between the two. Nothing is written
 * here; a run is entered by `turns.ts`, kept or abandoned by `ownership.ts`.
 */

import { Quota, type QuotaKey } from '../../base/quota.ts';
import { type Clock, deferred, every, memoryOf, type Repeating, WENT_ON, within } from '../../base/values.ts';
import { countActiveTurns } from '../frame/context.ts';
import type { Active } from './active.ts';
import type { Outcome } from './outcome.ts';
import {
  type EngineParts,
  type InTurn,
  isUnattached,
  keyOf,
  type Resume,
  type Run,
  type RunState,
  stopHeartbeat,
} from './run.ts';

/** Memory of one caller's outcomes that no journal keeps, in bytes; four times as much is for those of all. */
const MOST_KEPT = 16_777_216;

type ParkedState = Extract<RunState, { at: 'checkpoint' | 'interrupted' }>;

export class Runs {
  readonly #parts: EngineParts;
  /** Runs that wait here, by the key of the token that continues them. */
  readonly parked: Parked<Run>;
  /** The tasks that run here. */
  readonly room: Quota;
  /** What the arguments of the calls in a turn take in memory. */
  readonly heap: Quota;
  /** Resumed turns that run here, by the token's position and the answers. */
  readonly #active = new Map<string, Map<string, Active>>();
  /** Frames that are being claimed or abandoned, by key: a request for one waits, since it may be parked again. */
  readonly #unsettled = new Map<string, Promise<void>>();
  /** Turns whose ends are being written, by their calls. */
  readonly #ending = new Map<string, Promise<unknown>>();
  /** Turns whose tokens are being opened. */
  readonly #opening = new Set<Promise<unknown>>();
  /** Turns that are over and that no journal keeps, the newest last. */
  readonly #recent = new Map<string, Active>();
  /** What their outcomes take in memory. */
  readonly #kept = new Quota<{ readonly key: string }>({ all: 4 * MOST_KEPT, caller: MOST_KEPT });
  readonly #inTurn = new Set<Run>();
  /** Runs in a turn that continues without its request, by the call's id. */
  readonly #unattached = new Map<string, Run>();
  /** Calls that are taken over here, from before their claim until their turn is entered, each with when that began. */
  readonly taking = new Map<string, number>();
  /** Runs of calls that were taken over here, until that turn is over, by the call's id. */
  readonly #taken = new Map<string, Run>();
  /** Runs that are abandoned once their running steps are done. */
  readonly #abandoned = new Set<Run>();
  #isClosed = false;
  /** When turns are handed over, on the clock of `elapsed`, in milliseconds; undefined while the process stays. */
  #due: number | undefined;
  /** The turns that are waited for. */
  #quieting = new Set<Run>();
  #onQuiet: (() => void) | undefined;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    // A step that is running is recorded before its frame goes.
    const dropped = (run: Run) =>
      this.abandon(
        run,
        run.frame.settled().then(() => this.drop(run)),
      );
    const { limits } = parts;
    this.room = new Quota({
      all: limits.tasks,
      caller: limits.callerTasks,
      anonymous: limits.anonymousTasks,
    });
    this.heap = new Quota({ all: limits.argumentBytes, caller: limits.callerArgumentBytes });
    this.parked = new Parked(limits, parts.clock, dropped);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Whether the process is about to end: it serves what comes in, and keeps nothing for later. */
  get isLeaving(): boolean {
    return this.#due !== undefined;
  }

  /** Whether running turns had their time: each ends at its next step, or is given up. */
  get isDue(): boolean {
    return this.#parts.clock.elapsed() >= (this.#due ?? Infinity);
  }

  // --- requested turns ---

  #activeAt(key: string): Active[] {
    return [...(this.#active.get(key)?.values() ?? [])];
  }

  /** A turn that was requested already; one with other answers only if no journal decides between them. */
  known(key: string, sent: string): Active | undefined {
    const active = this.#activeAt(key).filter(({ isAbandoned }) => !isAbandoned);
    const other = this.#parts.store === undefined ? active[0] : undefined;
    return active.find((turn) => turn.sent === sent) ?? this.#recent.get(key) ?? other;
  }

  /** A turn is about to begin: a process that leaves waits for it. */
  opening<T>(opened: Promise<T>): Promise<T> {
    this.#opening.add(opened);
    return opened.finally(() => this.#opening.delete(opened));
  }

  begin(key: string, active: Active): void {
    const turns = this.#active.get(key) ?? new Map<string, Active>();
    this.#active.set(key, turns.set(active.sent, active));
  }

  over(key: string, active: Active): void {
    const turns = this.#active.get(key);
    // The same request may have begun another turn in place of an abandoned one.
    if (turns?.get(active.sent) === active) turns.delete(active.sent);
    if (turns?.size === 0) this.#active.delete(key);
  }

  /** Where no journal has the outcome, the same request gets it again from here. */
  remember({ state, active, binding }: Resume, outcome: Outcome): void {
    const { store, limits } = this.#parts;
    if (store !== undefined) return;
    active.release();
    const key = keyOf(state);
    this.#recent.set(key, active);
    // A small one counts so much that its caller has room for `outcomes` of them; one may be of infinite size.
    const bytes = Math.max(memoryOf(outcome), Math.floor(MOST_KEPT / limits.outcomes));
    this.#kept.hold({ key }, binding, Math.min(bytes, 2 * MOST_KEPT));
    this.#kept.makeRoom(binding, 0, (oldest) => this.#recent.delete(oldest.key));
  }

  /** In memory, a call's records are deleted with it where no client can ask for its outcome. */
  forget({ call, journal }: Run): void {
    if (journal.position >= 0) this.#parts.store?.forget?.(call, journal.position);
  }

  // --- runs that wait ---

  /** Whether a turn with this token would find its frame here. */
  has(key: string): boolean {
    const isParked = this.parked.get(key)?.frame.over === false;
    return isParked || this.#active.has(key) || this.#unsettled.has(key);
  }

  /** Whether a turn that this process claimed, with this token or as it took the call over, goes on or is given up here. */
  owns(key: string, callId: string): boolean {
    return (
      this.taking.has(callId) ||
      this.#taken.has(callId) ||
      this.#unsettled.has(key) ||
      this.#ending.has(callId) ||
      this.parked.get(key)?.frame.busy === true ||
      this.#activeAt(key).some((active) => active.owns) ||
      [...this.#abandoned].some(({ call }) => call.id === callId)
    );
  }

  /** The turn of a call that was taken over is claimed. */
  took(run: Run): void {
    this.#taken.set(run.call.id, run);
  }

  /** It is over. */
  #wasTaken(run: Run): void {
    if (this.#taken.get(run.call.id) === run) this.#taken.delete(run.call.id);
  }

  /** Resolves once the frame of this key is neither being claimed nor abandoned. */
  async settled(key: string): Promise<void> {
    for (let wait = this.#unsettled.get(key); wait !== undefined; wait = this.#unsettled.get(key)) await wait;
  }

  /** @returns a function that lets waiting requests have this frame */
  unsettle(key: string): () => void {
    const { promise: wait, resolve: settle } = deferred();
    this.#unsettled.set(key, wait);
    return () => {
      if (this.#unsettled.get(key) === wait) this.#unsettled.delete(key);
      settle();
    };
  }

  /** Takes the run that waits for this token; one whose frame cannot be entered is dropped, for a replay. */
  takeParked(key: string): { readonly run: Run; readonly waiting: ParkedState } | undefined {
    const run = this.parked.take(key);
    if (run === undefined) return undefined;
    const { state } = run;
    if (!run.frame.over && (state.at === 'checkpoint' || state.at === 'interrupted')) {
      return { run, waiting: state };
    }
    this.drop(run);
    return undefined;
  }

  /** @param waiting where it waits from now on, unless it does already */
  park(key: string, run: Run, waiting: ParkedState): void {
    run.state = waiting;
    this.#wasTaken(run);
    this.parked.park(key, run, run.call, waiting.bytes + run.bytes);
  }

  // --- turns ---

  enter(run: Run, turn: InTurn): void {
    run.state = turn;
    this.#inTurn.add(run);
    this.heap.hold(run.call, run.call, run.bytes);
    if (isUnattached(run) || run.isLogged) this.goesOn(run);
    countActiveTurns(1);
    if (!this.isLeaving) return;
    const { clock, limits } = this.#parts;
    // It has as long as those before it.
    clock.after(limits.drain, () => run.state === turn && void this.#stop(run, turn)).unref();
  }

  /** Ends a turn of a leaving process, unless it ends at its next step. Behind a link there is none to wait for. */
  async #stop(run: Run, turn: InTurn): Promise<void> {
    const { holdsServers, replay } = this.#parts;
    if (isUnattached(run) || turn.live) await turn.stop();
    else if (holdsServers && replay(run.call, run.frame.fold().completions) === 'allow') run.frame.giveUp();
  }

  /** Registers a call that continues without its request, by its id. */
  goesOn(run: Run): void {
    this.#unattached.set(run.call.id, run);
  }

  /** A caller's calls that are in a turn here, and of which nothing is written. */
  unwrittenOf(principal: string): Run[] {
    return [...this.#inTurn].filter(
      ({ call, journal }) => call.principal === principal && journal.position < 0,
    );
  }

  /** The run of a call that continues here without its request. */
  unattached(callId: string): Run | undefined {
    return this.#unattached.get(callId);
  }

  leaveTurn(run: Run): void {
    const { state } = run;
    if (state.at === 'turn') {
      countActiveTurns(-1);
      // It would keep the whole call in memory until it fires.
      state.expiry?.cancel();
      run.starts?.cancel();
      run.state = { at: 'ending', resolveGone: state.resolveGone };
    }
    if (this.#unattached.get(run.call.id) === run) this.#unattached.delete(run.call.id);
    this.room.leave(run);
    this.heap.leave(run.call);
    // Its timer would keep the whole run in memory until it fires.
    if (!run.frame.busy) stopHeartbeat(run);
    this.#inTurn.delete(run);
    if (this.#quieting.delete(run) && this.#quieting.size === 0) this.#onQuiet?.();
  }

  /** Its call continues elsewhere, or has ended: its tool's awaits never settle, or throw (`onDrop`). */
  drop(run: Run): void {
    if (run.state.at === 'over') return;
    this.#over(run);
    if (this.#parts.onDrop === 'unwind') {
      run.frame.unwind({
        code: -32000,
        message: 'This call goes on elsewhere, or is over; nothing that happens here counts any more.',
      });
    } else {
      run.frame.drop();
    }
    this.#release(run, true, true);
  }

  /** @param isUnfinished whether its tool did not finish @param goesOn whether its call may go on elsewhere */
  end(run: Run, isUnfinished: boolean, goesOn = false): void {
    if (run.state.at === 'over') return;
    this.#over(run);
    if (isUnfinished) run.frame.drop();
    this.#release(run, isUnfinished, goesOn);
  }

  /** A server that runs one call at a time is told that an unfinished one is over; one of this process is let go of. */
  #release(run: Run, isUnfinished: boolean, goesOn: boolean): void {
    const why = this.#parts.holdsServers && !this.#isClosed && (goesOn ? WENT_ON : 'the call is over');
    run.instance.release(isUnfinished, run.frame, why || undefined);
  }

  #over(run: Run): void {
    this.leaveTurn(run);
    this.#wasTaken(run);
    run.state = { at: 'over' };
  }

  // --- the end of the process ---

  /** A closing process waits for it. @param ended resolves once the turn's end is written */
  ending(callId: string, ended: Promise<unknown>): void {
    const settled: Promise<unknown> = Promise.allSettled([ended, this.#ending.get(callId)]).then(() => {
      if (this.#ending.get(callId) === settled) this.#ending.delete(callId);
    });
    this.#ending.set(callId, settled);
  }

  /** Keeps count of a run that is abandoned. @param settled resolves once it is */
  abandon(run: Run, settled: Promise<void>): void {
    this.#abandoned.add(run);
    void settled.finally(() => this.#abandoned.delete(run));
  }

  /**
   * Gives running turns some time. Then the calls that another process can continue without a request are given up;
   * other turns end at their next step. The time is that of the first call. Calls that come in meanwhile are run, and
   * not waited for: there may always be some.
   * @param wait milliseconds
   */
  async leave(wait: number): Promise<void> {
    const { clock } = this.#parts;
    const due = this.#due ?? clock.elapsed() + wait;
    this.#due = due;
    const until = (end: number): number => end - clock.elapsed();
    await within(clock, until(due), Promise.allSettled(this.#opening));
    const left = await this.#quiet(until(due));
    if (left.size > 0) this.#due = Math.min(due, clock.elapsed());
    const stopped = [...left].map((run) => run.state.at === 'turn' && this.#stop(run, run.state));
    // An outcome that is being written goes out on the connection that it is for.
    await within(clock, until(due + wait), Promise.allSettled([...stopped, ...this.#ending.values()]));
  }

  /**
   * Refuses new calls, gives turns that have no next step yet as long again as `leave` did, and abandons the others:
   * their clients are advised to send the same request again, and its process need not wait for a lease.
   * @param wait milliseconds
   */
  async close(wait: number): Promise<void> {
    if (!this.isLeaving) await this.leave(wait);
    const { clock } = this.#parts;
    this.#isClosed = true;
    // Requests that wait for another process's turn are among them.
    const requested = [...this.#active.values()].flatMap((turns) => [...turns.values()]);
    const left = (this.#due ?? 0) + wait - clock.elapsed();
    const ends = [this.#quiet(left), ...requested.map(({ outcome }) => outcome)];
    await within(clock, left, Promise.all(ends));
    for (const { state } of [...this.#inTurn]) if (state.at === 'turn') void state.stop();
    await within(clock, wait / 2, Promise.all([...this.#unsettled.values(), ...this.#ending.values()]));
    // A step that outlasts this is recorded still, if the process lives to; its server is cleaned up now.
    for (const run of this.#abandoned) run.instance.release(true, run.frame);
    this.parked.dropAll();
  }

  /** Waits for the turns that run now, so many milliseconds at most. @returns those that run still */
  async #quiet(wait: number): Promise<ReadonlySet<Run>> {
    const left = new Set(this.#inTurn);
    if (left.size === 0 || wait <= 0) return left;
    this.#quieting = left;
    const quiet = new Promise<void>((resolve) => {
      this.#onQuiet = resolve;
    });
    await within(this.#parts.clock, wait, quiet);
    return left;
  }
}

// --- parked calls ---

/**
 * The frames parked in this process, by the token they wait for. Bounded in number, in number and bytes of one caller,
 * and in idle time; a dropped frame costs nothing, since its call continues by replay, unless that is forbidden
 * (invariants 3 and 14).
 */

export interface ParkedLimits {
  readonly frames: number;
  readonly callerFrames: number;
  readonly callerBytes: number;
  /** In milliseconds. */
  readonly frameIdle: number;
}

interface ParkedItem<T> {
  readonly key: string;
  readonly item: T;
  readonly since: number;
  readonly principal: string | undefined;
}

export class Parked<T> {
  /** In the order of insertion, and a frame is parked anew on each turn: the least recently used come first. */
  readonly #places = new Map<string, ParkedItem<T>>();
  /** Anonymous callers may have all frames: theirs go before a known caller's. */
  readonly #frames: Quota<ParkedItem<T>>;
  /** A frame's memory cannot be measured; its journal can. */
  readonly #bytes: Quota<ParkedItem<T>>;
  readonly #limits: ParkedLimits;
  readonly #clock: Clock;
  readonly #dropped: (item: T) => void;
  #timer: Repeating | undefined;

  constructor(limits: ParkedLimits, clock: Clock, dropped: (item: T) => void) {
    this.#limits = limits;
    const { frames, callerFrames, callerBytes } = limits;
    this.#frames = new Quota({ all: frames, caller: callerFrames, anonymous: frames });
    this.#bytes = new Quota({ all: Infinity, caller: callerBytes });
    this.#clock = clock;
    this.#dropped = dropped;
  }

  get size(): number {
    return this.#places.size;
  }

  park(key: string, item: T, { principal }: QuotaKey, bytes: number): void {
    const place = { key, item, since: this.#clock.elapsed(), principal };
    this.#places.set(key, place);
    this.#frames.hold(place, place);
    this.#bytes.hold(place, place, bytes);
    for (const quota of [this.#frames, this.#bytes])
      quota.makeRoom(place, 0, (oldest) => this.#drop(oldest.key));
    if (this.#places.size > 0)
      this.#timer ??= every(this.#clock, Math.min(this.#limits.frameIdle, 30_000), () => this.#dropIdle());
  }

  /** The keys of the parked frames, as they are now. */
  get keys(): readonly string[] {
    return [...this.#places.keys()];
  }

  get(key: string): T | undefined {
    return this.#places.get(key)?.item;
  }

  take(key: string): T | undefined {
    const place = this.#places.get(key);
    if (place === undefined) return undefined;
    this.#places.delete(key);
    this.#frames.leave(place);
    this.#bytes.leave(place);
    return place.item;
  }

  /** @param may whether one may be dropped */
  letGo(may: (item: T) => boolean): void {
    for (const { key, item } of this.#places.values()) if (may(item)) this.#drop(key);
  }

  /** Drops the parked frames of one caller. */
  dropOf(caller: string): void {
    for (const { key, principal } of this.#places.values()) if (principal === caller) this.#drop(key);
  }

  dropAll(): void {
    for (const key of this.#places.keys()) this.#drop(key);
    this.#stop();
  }

  #drop(key: string): void {
    const item = this.take(key);
    if (item !== undefined) this.#dropped(item);
  }

  #dropIdle(): void {
    const before = this.#clock.elapsed() - this.#limits.frameIdle;
    for (const [key, { since }] of this.#places) {
      if (since > before) break;
      this.#drop(key);
    }
    if (this.#places.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
