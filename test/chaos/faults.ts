/** Faults of the processes and the store, in an order that the seed decides: each kind in every round. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Random, randomOf } from '../fixtures/random.ts';
import type { TcpProxy } from '../fixtures/tcp-proxy.ts';
import { clock, type Fault, LEASE } from './events.ts';
import type { Fleet } from './fleet.ts';
import type { OwnStore } from './stores.ts';

/** How long connections to the store are refused after they were cut, in milliseconds. */
const CUT = 20;

/** The store's operations give up after a quarter of a lease: slow is some of both. */
const SHORT = [400, 4_000] as const;
const LONG = [5_500, 7_500] as const;

/** A call begins in a process, and goes on once it is over. */
export interface Moment {
  readonly pid: number;
  readonly over: () => void;
}

type StoreFault = 'restart' | 'slow a little' | 'slow' | 'full';

/**
 * @param which `kills`: one process a lease, or as soon as its replacement is up, and nothing else; `moments`: the
 *   same, each in the moment in which a call of it begins; `cuts`: all connections to the store break every second or two
 * @param moment resolves in such a moment, or with undefined once the run is over
 */
export function disturb(
  fleet: Fleet,
  store: OwnStore,
  seed: number,
  which: 'all' | 'kills' | 'moments' | 'cuts',
  isOver: () => boolean,
  moment: () => Promise<Moment | undefined>,
  proxy?: TcpProxy,
) {
  const faults: Fault[] = [];
  const during = async (kind: Fault['kind'], pid: number | undefined, run: () => Promise<void>) => {
    const since = clock();
    const fault: Fault = { kind, since, until: Infinity, ...(pid !== undefined && { pid }) };
    faults.push(fault);
    try {
      await run();
    } finally {
      fault.until = clock();
    }
  };

  /** Its signal is sent at once. Resolves once another process is in its place. */
  const kill = async (index: number): Promise<void> => {
    await during('kill', fleet.pid(index), () => fleet.kill(index));
    await fleet.restart(index);
  };

  const toProcess = async (kind: 'kill' | 'stop', random: Random): Promise<void> => {
    const index = random.int(fleet.size);
    if (kind === 'kill') return kill(index);
    await during(kind, fleet.pid(index), async () => {
      fleet.signal(index, 'SIGSTOP');
      await sleep(LEASE * random.between(1.2, 3.6));
      fleet.signal(index, 'SIGCONT');
    });
  };

  const toStore = async (kind: StoreFault, random: Random): Promise<void> => {
    if (kind === 'restart') {
      await during(kind, undefined, async () => store.restart?.());
    } else if (kind === 'full') {
      await during(kind, undefined, async () => {
        await fleet.fill(true);
        await sleep(random.between(1_000, 3_000));
        await fleet.fill(false);
      });
    } else {
      const [least, most] = kind === 'slow' ? LONG : SHORT;
      await during('slow', undefined, async () => {
        await store.pause();
        await sleep(random.between(least, most));
        await store.resume();
      });
    }
  };

  const rounds: Promise<void>[] = [];
  const loop = async <K>(
    random: Random,
    kinds: readonly K[],
    pause: readonly [number, number],
    inflict: (kind: K, random: Random) => Promise<void>,
  ): Promise<void> => {
    let round = (): void => {};
    rounds.push(new Promise((resolve) => (round = resolve)));
    for (;;) {
      for (const kind of random.shuffled(kinds)) {
        await sleep(random.between(...pause));
        if (isOver()) return;
        await inflict(kind, random);
      }
      round();
    }
  };

  const of = (...loops: Promise<void>[]) => ({
    faults,
    /** Each kind of fault was inflicted once: on a busy machine a process may take all of a short run to start. */
    everyKind: Promise.all(rounds),
    done: Promise.all(loops),
  });
  const storeKinds: readonly StoreFault[] =
    store.restart === undefined
      ? ['full', 'slow a little', 'full', 'slow']
      : ['restart', 'slow a little', 'restart', 'slow'];
  if (which === 'kills') {
    return of(loop(randomOf(seed), ['kill'] as const, [LEASE, LEASE], toProcess));
  }
  if (which === 'cuts') {
    const cut = (): Promise<void> => during('cut', undefined, async () => proxy?.blink(CUT));
    return of(loop(randomOf(seed), ['cut'] as const, [300, 2_500], cut));
  }
  if (which === 'moments') {
    const inMoment = async (): Promise<void> => {
      const { pid, over } = (await moment()) ?? {};
      if (pid === undefined) return;
      const indices = Array.from({ length: fleet.size }, (_, index) => index);
      const index = indices.find((one) => fleet.pid(one) === pid) ?? -1;
      const replaced = kill(index);
      over?.();
      await replaced;
    };
    return of(loop(randomOf(seed), ['kill'] as const, [300, 1_000], inMoment));
  }
  return of(
    loop(randomOf(seed), ['kill', 'kill', 'stop'] as const, [500, 1_400], toProcess),
    loop(randomOf(seed + 1), storeKinds, [2_000, 4_000], toStore),
  );
}
