/** The judge of the chaos run, on ledgers made by hand: which it accepts, and which it does not. */
import { describe, expect, it } from 'vitest';
import { type Append, type Event, type Fault, LEASE } from './events.ts';
import { judge } from './verdict.ts';

const [FIRST, SECOND] = [11, 22];

function ran(run: string, pid: number, at: number, ended = true): Event[] {
  const effect = { call: 'call', step: 'charge', key: 'key', run, pid };
  const begin: Event = { ...effect, type: 'begin', at };
  return ended ? [begin, { ...effect, type: 'end', at: at + 100 }] : [begin];
}

function appended(pid: number, entry: string, at: number, rest: Partial<Append> = {}): Event {
  return { type: 'append', call: 'call', entry, outcome: 'written', pid, since: at - 5, at, ...rest };
}

function kill(pid: number, at: number): Fault {
  return { kind: 'kill', pid, since: at, until: at };
}

/** The second process takes the turn over at 5,000, and its execution is the one that counts. */
const SECOND_TURN = [
  appended(SECOND, 'claimed', 5_000),
  ...ran('second', SECOND, 5_010),
  appended(SECOND, 'completed', 5_120, { run: 'second' }),
];
const judged = (first: readonly Event[], faults: readonly Fault[], done = [counts('second')]) =>
  judge([appended(FIRST, 'claimed', 1_000), ...first, ...SECOND_TURN], faults, done);

function counts(run: string) {
  return { step: 'charge', key: 'key', run };
}

describe('the verdict on a step that ran twice', () => {
  it('excuses a kill before the record was written', () => {
    const { excused, violations } = judged(ran('first', FIRST, 1_010, false), [kill(FIRST, 1_050)]);
    expect([...excused]).toEqual([['kill', 1]]);
    expect(violations).toEqual([]);
  });

  it('excuses a kill while the step runs, however long that takes', () => {
    const { excused, violations } = judged(ran('first', FIRST, 1_010, false), [kill(FIRST, 4_900)]);
    expect([...excused]).toEqual([['kill', 1]]);
    expect(violations).toEqual([]);
  });

  it('excuses a kill while the step waits for its ledger', () => {
    const first = ran('first', FIRST, 1_010).map((event) => ({ ...event, received: 4_800 }));
    expect(judged(first, [kill(FIRST, 4_900)]).violations).toEqual([]);
  });

  it('excuses a kill while the store takes the record, for as long as a lease', () => {
    const sent: Event = { type: 'appending', run: 'first', at: 1_115 };
    const killedAt = (at: number) => judged([...ran('first', FIRST, 1_010), sent], [kill(FIRST, at)]);
    expect([...killedAt(1_100 + LEASE).excused]).toEqual([['kill', 1]]);
    expect(killedAt(1_200 + LEASE).violations).toHaveLength(1);
  });

  it('excuses a step that begins while its process is being killed, and none that begins after it', () => {
    const killed = (until: number): Fault => ({ ...kill(FIRST, 1_005), until });
    const first = ran('first', FIRST, 1_010, false);
    expect([...judged(first, [killed(1_012)]).excused]).toEqual([['kill', 1]]);
    expect(judged(first, [killed(1_008)]).violations).toHaveLength(1);
  });

  it.each([
    ['another process', [kill(SECOND, 1_050)]],
    ['a process that had had all the time to write', [kill(FIRST, 3_000)]],
    ['nobody', []],
  ])('is not taken in by a kill of %s', (_whom, faults) => {
    expect(judged(ran('first', FIRST, 1_010), faults).violations).toHaveLength(1);
  });

  const fenced = [
    ...ran('first', FIRST, 1_010),
    appended(FIRST, 'completed', 5_200, { run: 'first', outcome: 'fenced' }),
  ];
  const pause = (pid: number, since: number, length: number): Fault => ({
    kind: 'stop',
    pid,
    since,
    until: since + length,
  });

  it('excuses a lease that was lost in a pause', () => {
    expect([...judged(fenced, [pause(FIRST, 1_050, LEASE)]).excused]).toEqual([['stop', 1]]);
  });

  it.each([
    ['of another process', pause(SECOND, 1_050, LEASE)],
    ['before the turn was claimed', pause(FIRST, 1_000 - 2 * LEASE, LEASE)],
    ['far shorter than a lease', pause(FIRST, 1_050, LEASE / 3)],
  ])('is not taken in by a pause %s', (_which, fault) => {
    expect(judged(fenced, [fault]).violations).toHaveLength(1);
  });

  it('excuses a lease that was lost in many short pauses, if they are half of one together', () => {
    const fenced = appended(FIRST, 'completed', 5_300, { run: 'first', outcome: 'fenced', since: 5_295 });
    const paused = (count: number): Event[] =>
      Array.from({ length: count }, (_, nth) => {
        const since = 1_100 + 200 * nth;
        return { type: 'stall', pid: FIRST, since, at: since + LEASE / 20 };
      });
    const { excused } = judged([...ran('first', FIRST, 1_010), ...paused(10), fenced], []);
    expect([...excused]).toEqual([['stall', 1]]);
    const { violations } = judged([...ran('first', FIRST, 1_010), ...paused(9), fenced], []);
    expect(violations).toEqual([expect.stringContaining('lost without a pause')]);
  });

  it('excuses a record that failed in a store with a fault, and none that failed by itself', () => {
    const failed = [
      ...ran('first', FIRST, 1_010),
      appended(FIRST, 'completed', 1_120, { run: 'first', outcome: 'store' }),
    ];
    expect([...judged(failed, [{ kind: 'full', since: 1_100, until: 1_200 }]).excused]).toEqual([
      ['full', 1],
    ]);
    expect(judged(failed, []).violations).toHaveLength(1);
  });

  it('excuses a record that failed on waking, if the store fell in the pause', () => {
    const failed = [
      ...ran('first', FIRST, 1_010),
      appended(FIRST, 'completed', 4_120, { run: 'first', outcome: 'store' }),
    ];
    const stop = pause(FIRST, 1_050, 3_000);
    const restart: Fault = { kind: 'restart', since: 1_100, until: 1_200 };
    expect([...judged(failed, [stop, restart]).excused]).toEqual([['restart', 1]]);
    expect(judged(failed, [stop]).violations).toHaveLength(1);
    expect(judged(failed, [restart]).violations).toHaveLength(1);
  });

  it('excuses nothing where the step was recorded before the turn was claimed, or recorded twice', () => {
    const late = judged(
      [...ran('first', FIRST, 1_010), appended(FIRST, 'completed', 1_120, { run: 'first' })],
      [kill(FIRST, 1_121), kill(SECOND, 5_060)],
      [counts('first')],
    );
    expect(late.violations).toEqual([expect.stringContaining('recorded already')]);
    const twice = judged(
      [...ran('first', FIRST, 1_010), appended(FIRST, 'completed', 1_120, { run: 'first' })],
      [kill(FIRST, 1_121)],
    );
    expect(twice.violations).toEqual([expect.stringContaining('two executions were recorded')]);
  });
});

describe('the verdict on keys', () => {
  it('wants each effect in a completed call, and each completed step in the ledger', () => {
    expect(judge(SECOND_TURN, [], []).violations).toHaveLength(1);
    expect(judge([], [], [counts('second')]).violations).toHaveLength(1);
    expect(judge(SECOND_TURN, [], [counts('second')])).toMatchObject({
      keys: 1,
      completed: 1,
      violations: [],
    });
  });
});
