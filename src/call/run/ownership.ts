/**
 * A call has one owner: the process whose turn it is. Here the owner writes its signs of life, reads cancellations, and
 * gives the call up: for good (cancelled), or to the next owner (abandoned, so that no lease is waited for).
 */
import { AwaitError, every, hasCode, type Repeating } from '../../base/values.ts';
import { type Entry, isEnd } from '../journal/entries.ts';
import { LEFT_SIGN } from '../journal/store.ts';
import { unlessFenced } from '../journal/writer.ts';
import type { Runs } from './registry.ts';
import {
  becomingTask,
  type EngineParts,
  type Interrupted,
  isTask,
  isUnattached,
  keyOf,
  type Resume,
  type Run,
  stopHeartbeat,
} from './run.ts';

/** The reason in a cancelled tool's signal. */
export const WAS_CANCELLED = 'the request was cancelled';
/** How often the journals of parked calls are read, where each keeps its server from other calls; in milliseconds. */
const LOOK_EVERY = 1_000;

export class Ownership {
  readonly #parts: EngineParts;
  readonly #runs: Runs;
  readonly #id: string;

  /** @param id this engine's, as its claims have it */
  constructor(parts: EngineParts, runs: Runs, id: string) {
    this.#parts = parts;
    this.#runs = runs;
    this.#id = id;
  }

  /** Shows others that a turn is being run, also while a step runs beside its asks. A short turn writes nothing. */
  beat(run: Run): void {
    const { store, clock, limits } = this.#parts;
    if (store === undefined || run.heartbeat !== undefined) return;
    let count = 0;
    run.heartbeat = every(clock, limits.lease / 3, () => {
      const isInTurn = run.state.at === 'turn';
      if (!isInTurn && !run.frame.busy) {
        stopHeartbeat(run);
        return;
      }
      count += 1;
      if (isTask(run) && clock.now() > run.call.expires) {
        this.#stop(run);
        return;
      }
      if (isUnattached(run)) void this.look(run);
      // Silent for so long that another may have taken the call over: an entry decides before the next sign of life.
      if (isInTurn && run.journal.lapsed) {
        if (run.isReclaiming) return;
        run.isReclaiming = true;
        const done = (): unknown => delete run.isReclaiming;
        void this.holds(run).then(done, done);
        return;
      }
      run.journal
        .beat(`${run.journal.position}.${count}`)
        .catch(this.#failed(run, 'a heartbeat could not be written'));
    });
  }

  /**
   * Whether the turn of a run is still its own: an entry decides.
   * @throws AwaitError `store`
   */
  async holds(run: Run): Promise<boolean> {
    try {
      await run.journal.append({ type: 'held' });
      return true;
    } catch (error) {
      this.lost(run, error);
      if (hasCode(error, 'fenced')) return false;
      throw error;
    }
  }

  /** Ends the turn here if another process owns it now, or its journal is full. */
  lost(run: Run, error: unknown): void {
    const failure = AwaitError.from(error, 'store');
    if (failure.code === 'fenced' || failure.code === 'limit') run.frame.break(failure);
  }

  // --- cancelled ---

  /** Resolves once the journal keeps other processes from taking over the cancelled call. */
  async cancel(run: Run, reason?: string): Promise<void> {
    if (run.state.at === 'over') return;
    this.#end(run, reason);
    await becomingTask(run)?.catch(() => {});
    if (!isUnattached(run) && !run.isLogged) return;
    await run.journal.append({ type: 'cancelled', when: this.#parts.clock.now() });
  }

  /** As `cancel`; false when the call is another process's by now, or was over before. */
  isCancelled(run: Run, reason: string): Promise<boolean> {
    return unlessFenced(this.cancel(run, reason).then(() => true));
  }

  /**
   * Reads on what other processes wrote. A cancellation fires the tool's signal. After a claim this process gives no
   * more signs of life: they would keep the call from the others, should the new owner die. Its tool waits on, so that a
   * response that is on its way here is still accepted, or refused to be sent again.
   */
  async look(run: Run): Promise<void> {
    try {
      if (run.state.at === 'over') return;
      const next = await run.journal.readOn();
      if (next?.type === 'cancelled') this.#stop(run, next.isErased);
      else if (next?.type === 'claimed' && next.by !== this.#id) {
        stopHeartbeat(run);
        run.starts?.cancel();
      }
    } catch (error) {
      this.#failed(run, 'a journal could not be looked at')(error);
    }
  }

  /** The owner lost a position of the journal: if to a cancellation, the tool's signal fires. */
  async cancellation(run: Run): Promise<Extract<Entry, { type: 'cancelled' }> | undefined> {
    const next = await this.#next(run);
    if (next?.type !== 'cancelled') return undefined;
    run.instance.cancel(run.frame, WAS_CANCELLED);
    return next;
  }

  /** Frees the servers of parked calls that another process continued or ended; undefined where none is held. */
  lookAtParked(): Repeating | undefined {
    const { store, holdsServers, clock } = this.#parts;
    if (store === undefined || !holdsServers) return undefined;
    let isLooking = false;
    return every(clock, LOOK_EVERY, () => {
      if (isLooking) return;
      isLooking = true;
      void Promise.all(this.#runs.parked.keys.map((key) => this.#lookAtParked(key))).finally(() => {
        isLooking = false;
      });
    });
  }

  async #lookAtParked(key: string): Promise<void> {
    const run = this.#runs.parked.get(key);
    if (run === undefined) return;
    const { state } = run;
    try {
      const next = await this.#next(run);
      // An entry after a parked call's last says that the frame here is of no more use.
      const isOthers = next?.type === 'claimed' ? next.by !== this.#id : next !== undefined && isEnd(next);
      // Meanwhile a request may have entered it here.
      if (this.#runs.parked.get(key) !== run || run.state !== state || !isOthers) return;
      this.#runs.parked.take(key);
      this.#runs.drop(run);
    } catch (error) {
      this.#failed(run, 'the journal of a parked call could not be read', 'debug')(error);
    }
  }

  async #next({ call, journal }: Run): Promise<Entry | undefined> {
    return this.#parts.store?.read(call.id, journal.position + 1);
  }

  #stop(run: Run, isErased = false): void {
    if (run.state.at !== 'over') this.#end(run, WAS_CANCELLED, isErased);
  }

  #end(run: Run, reason: string | undefined, isErased = false): void {
    const { state } = run;
    run.instance.cancel(run.frame, reason);
    run.frame.drop('over');
    this.#runs.end(run, true);
    if (state.at === 'turn' || state.at === 'ending') state.resolveGone(isErased);
  }

  // --- abandoned ---

  /** The client of a turn disconnected: the same request continues it, here or elsewhere. */
  disconnect(run: Run, request: Resume): void {
    if (run.state.at !== 'turn' || run.frame.over || isTask(run) || becomingTask(run) !== undefined) return;
    const key = keyOf(request.state);
    const waiting = interrupted(run, request);
    this.#runs.leaveTurn(run);
    this.#runs.over(key, request.active);
    run.state = waiting;
    void this.#giveUp(run, key, () => {
      if (run.frame.over || run.starts || this.#runs.isClosed) this.#runs.drop(run);
      else this.#runs.park(key, run, waiting);
    });
  }

  /**
   * This process leaves: other processes need not wait for the lease of a call that continues without its request.
   * Resolves once the call is theirs.
   */
  abandon(run: Run): Promise<void> {
    return this.#giveUp(run, run.call.id, () => run.journal.beat(LEFT_SIGN).then(() => this.#runs.drop(run)));
  }

  /** Running steps end and are recorded; then another process may continue. @param then once that is written */
  #giveUp(run: Run, key: string, then: () => void | Promise<void>): Promise<void> {
    run.frame.leave();
    run.starts?.cancel();
    const abandoned = run.frame
      .settled()
      .then(() => run.journal.append({ type: 'left' }))
      .then(then)
      .catch((error: unknown) => {
        this.#failed(run, 'a turn could not be given up')(error);
        this.#runs.drop(run);
      })
      .finally(this.#runs.unsettle(key));
    this.#runs.abandon(run, abandoned);
    return abandoned;
  }

  /** Logs why something of a call failed. */
  #failed({ call }: Run, what: string, level: 'debug' | 'warn' = 'warn'): (error: unknown) => void {
    return (error) => this.#parts.log(level, what, { call: call.id, error });
  }
}

/** A turn that ended without an outcome. */
export function interrupted({ frame }: Run, { sent }: Resume): Interrupted {
  return { at: 'interrupted', sent, bytes: JSON.stringify(frame.fold()).length };
}
