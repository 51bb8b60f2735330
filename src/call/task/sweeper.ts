/**
 * Takes over tasks whose owner died while no client asks about them: each process reads the index of tasks, and checks
 * now and then whether those of other processes still move. The first check is one read, and so is each as long as the
 * owner gives signs of life: a process that has just started must not read the journals of all tasks before it can take
 * over the first. A task that has not moved for a lease, by this process's own clock, is taken over.
 */
import { type Clock, hasCode, type Timer, within } from '../../base/values.ts';
import type { CallRecord } from '../journal/entries.ts';
import { type Signs, Silence } from '../journal/silence.ts';
import { LEFT_SIGN } from '../journal/store.ts';

export interface Sweeping {
  readonly clock: Clock;
  /** How long an owner may be silent, in milliseconds. */
  readonly lease: number;
  /** Tasks that were not returned before. */
  readonly added: () => Promise<readonly string[]>;
  readonly store: Signs;
  /** How far a task is; undefined once it is over. @param from a position that it has reached; -1 where unknown */
  readonly progress: (
    id: string,
    from: number,
  ) => Promise<{ readonly call: CallRecord; readonly at: number; readonly left: boolean } | undefined>;
  readonly runsHere: (id: string) => boolean;
  /** Whether it may run here too; one that may not is checked again later. */
  readonly hasRoom: (call: CallRecord) => boolean;
  /**
   * Resolves when it is run here, or is another process's after all.
   * @param at how far it was when its owner was seen to be silent
   */
  readonly takeUp: (call: CallRecord, at: number) => Promise<unknown>;
  readonly failed: (error: unknown) => void;
}

export interface Sweeper {
  /** Watches a task until it ends. */
  watch(id: string): void;
  stop(): void;
}

/** Most tasks of each kind that are checked in one round: more than a few callers begin in that time, and all of a busy service's. */
const MOST = 5_000;
/**
 * Most tasks that are taken over at once: each replays its journal, and the calls that already run here must show in
 * time that they are alive.
 */
const TAKEN = 12;
/** Checks at once: a read from a store is mostly waiting. */
const CHECKS = 8;

interface Watched {
  at: number;
  readonly silence: Silence;
}

export function sweepTasks(sweeping: Sweeping): Sweeper {
  const { clock, lease, added, store, progress, runsHere, hasRoom, takeUp, failed } = sweeping;
  const watched = new Map<string, Watched>();
  const taking = new Set<string>();
  /** Takeovers that count against the limit; one that takes longer than a lease no longer does. */
  const places = new Set<Promise<unknown>>();
  let checks = 0;
  let isOver = false;
  const watch = (id: string): void => {
    if (!watched.has(id)) watched.set(id, { at: -1, silence: new Silence(clock, store, id) });
  };

  const take = (id: string, call: CallRecord, at: number): void => {
    taking.add(id);
    const taken = takeUp(call, at)
      .catch(failed)
      .finally(() => taking.delete(id));
    const place: Promise<unknown> = within(clock, lease, taken).finally(() => places.delete(place));
    places.add(place);
  };

  const look = async (id: string, known: Watched): Promise<void> => {
    const { silence } = known;
    const lasted = await silence.lasts();
    const { sign } = silence;
    // A sign may have no position.
    const position = Number.parseInt(String(sign), 10);
    if (position > known.at) known.at = position;
    if (lasted <= 0 && sign !== LEFT_SIGN) return;
    const found = await progress(id, known.at);
    if (found === undefined) {
      watched.delete(id);
      return;
    }
    // The sign tells of entries that others wrote, too.
    const hasMoved = found.at > known.at;
    known.at = found.at;
    if (hasMoved) silence.end();
    if (isOver || (!found.left && (hasMoved || lasted < lease)) || !hasRoom(found.call)) return;
    silence.end();
    take(id, found.call, found.at);
  };

  const check = async ([id, known]: [string, Watched]): Promise<void> => {
    // Moved to the end: tasks that are not checked in this round are first in the next.
    watched.delete(id);
    watched.set(id, known);
    if (taking.has(id) || runsHere(id)) return;
    checks += 1;
    await look(id, known).finally(() => {
      checks -= 1;
    });
  };

  const round = async (): Promise<void> => {
    for (const id of await added()) watch(id);
    // Those that were alive are looked at in every round, and first; most others turn out to be over.
    const due = [true, false].flatMap((wasAlive) =>
      [...watched].filter(([, { silence }]) => (silence.sign !== undefined) === wasAlive).slice(0, MOST),
    );
    let failure: { readonly error: unknown } | undefined;
    const checkAll = async (): Promise<void> => {
      for (;;) {
        // The next as soon as one is done: a dead process's are all to run again in a lease and a half.
        while (places.size > 0 && places.size + checks >= TAKEN) await Promise.race(places);
        const next = isOver ? undefined : due.shift();
        if (next === undefined) return;
        await check(next).catch((error: unknown) => {
          // The next round tries again. A store that is down fails for all.
          failure ??= { error };
          if (hasCode(error, 'store')) due.length = 0;
        });
      }
    };
    await Promise.all(Array.from({ length: CHECKS }, checkAll));
    if (failure !== undefined) throw failure.error;
  };

  let timer: Timer;
  const arm = (pause: number): void => {
    if (isOver) return;
    timer = clock.after(pause, () => {
      const began = clock.elapsed();
      const next = (): void => arm(Math.max(began + lease / 2 - clock.elapsed(), lease / 10));
      void round().catch(failed).finally(next);
    });
    timer.unref();
  };
  // Soon: of the tasks of a process that died, this one sees a lease later that they do not move.
  arm(lease / 10);
  return {
    watch,
    stop: () => {
      isOver = true;
      timer.cancel();
    },
  };
}
