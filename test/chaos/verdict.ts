/**
 * Whether the ledger keeps the promises. An execution of a step counts if its result is the one its call ended with;
 * every other one needs an excuse, in its own process:
 *
 * 1. Its process was killed before its record could be written.
 * 2. Its record was fenced: another process had the turn. That is a lost lease, and there must be pauses of
 *  this process, or a fault of the store, of half a lease or more together, since it last wrote into this journal; or
 *  writing this very record took so long.
 * 3. Its record failed in the store, while the store had a fault or this process a pause.
 *
 * No execution begins in a turn that was claimed after its step had been recorded, whatever the fault.
 */
import { type Append, type Effect, type Event, type Fault, LEASE, type Stall } from './events.ts';

/** From a step's end to its record in the journal, where nothing is wrong, in milliseconds. */
const GRACE = LEASE / 3;
/** How long after a pause a process may come upon what happened in it, in milliseconds. */
const WAKING = 2_500;
/** A restarted store answers again, but its clients only after they have reconnected, in milliseconds. */
const AFTERMATH = { kill: 0, stop: 0, restart: 2_500, slow: 500, full: 500, cut: 0 } as const;

/** A step as its completed call reports it. */
export interface DoneStep {
  readonly step: string;
  readonly key: string;
  readonly run: string;
}

export interface Verdict {
  /** Idempotency keys in the ledger. */
  readonly keys: number;
  readonly completed: number;
  readonly repeated: number;
  /** Repeated executions, by their excuse. */
  readonly excused: ReadonlyMap<string, number>;
  readonly violations: readonly string[];
}

interface Execution extends Effect {
  /** When the ledger had its end: the step returns no earlier. */
  readonly ended?: number;
}

export function judge(
  events: readonly Event[],
  faults: readonly Fault[],
  done: readonly DoneStep[],
): Verdict {
  const executions = executionsIn(events);
  const appends = groupBy(
    events.filter((event) => event.type === 'append'),
    ({ pid, call }) => `${pid} ${call}`,
  );
  const stalls = events.filter((event) => event.type === 'stall');
  const appending = new Map(
    events.flatMap((event) => (event.type === 'appending' ? [[event.run, event.at]] : [])),
  );
  const written = new Map<string, Append>();
  for (const append of [...appends.values()].flat())
    if (append.run !== undefined && append.outcome === 'written') written.set(append.run, append);
  const byKey = groupBy(executions, ({ key }) => key);
  const counting = new Map(done.map(({ key, run }) => [key, run]));
  const excused = new Map<string, number>();
  const violations: string[] = [];
  for (const { key, step, run } of done) {
    if (!byKey.get(key)?.some((execution) => execution.run === run))
      violations.push(`step ${step} is reported as done, and the ledger has no such execution (${run})`);
  }
  for (const [key, all] of byKey) {
    const counts = counting.get(key);
    const [{ step, call }] = all as [Execution];
    if (counts === undefined) {
      violations.push(`step ${step} of call ${call} had an effect, and no completed call has it`);
      continue;
    }
    for (const execution of all) {
      if (execution.run === counts) continue;
      const own = appends.get(`${execution.pid} ${execution.call}`) ?? [];
      const reason = excuse(execution, {
        own,
        stalls,
        faults,
        recorded: written.get(counts),
        sent: appending.get(execution.run),
      });
      if (reason.ok) excused.set(reason.kind, (excused.get(reason.kind) ?? 0) + 1);
      else violations.push(`step ${step} of call ${call} ran again: ${reason.what}`);
    }
  }
  const repeated = [...byKey.values()].filter((all) => all.length > 1).length;
  return { keys: byKey.size, completed: counting.size, repeated, excused, violations };
}

interface Around {
  /** What this process appended to this call's journal. */
  readonly own: readonly Append[];
  readonly stalls: readonly Stall[];
  readonly faults: readonly Fault[];
  /** The record of the execution that counts. */
  readonly recorded: Append | undefined;
  /** When its result was on its way into the journal. */
  readonly sent: number | undefined;
}

type Excuse = { readonly ok: true; readonly kind: string } | { readonly ok: false; readonly what: string };

function excuse(execution: Execution, { own, stalls, faults, recorded, sent }: Around): Excuse {
  const { pid, at, run } = execution;
  const no = (what: string): Excuse => ({ ok: false, what: `${what} (process ${pid}, at ${at.toFixed(0)})` });
  const before = own.filter((append) => append.outcome === 'written' && append.at <= at);
  const claim = before.findLast(({ entry }) => entry === 'claimed');
  if (claim !== undefined && recorded !== undefined && recorded.at < claim.since)
    return no('its turn was claimed when the step had been recorded already');
  /** When this process last knew for sure that the turn was its own. */
  const owned = before.at(-1)?.since ?? at - GRACE;
  const cause = (since: number, until: number, least: number): string | undefined => {
    const fault = faults.find((one) => hits(one, pid) && overlap(withAftermath(one), since, until) >= least);
    if (fault !== undefined) return fault.kind;
    const lost = stalls.map((stall) => (stall.pid === pid ? overlap(stall, since, until) : -1));
    const within = lost.filter((one) => one >= 0);
    return within.length > 0 && sum(within) >= least ? 'stall' : undefined;
  };
  const fate =
    own.find((append) => append.run === run) ??
    own.find((append) => append.outcome !== 'written' && append.at >= at);
  switch (fate?.outcome) {
    case 'written':
      return no('two executions were recorded');
    case 'fenced': {
      const dragged = fate.at - fate.since >= LEASE / 2 ? 'a write that took long' : undefined;
      const kind = cause(owned, fate.at, LEASE / 2) ?? dragged;
      return kind === undefined ? no('its lease was lost without a pause') : { ok: true, kind };
    }
    case 'store': {
      const kind = cause(fate.since, fate.at, 0) ?? sleptThrough(faults, pid, fate.since);
      return kind === undefined ? no(`the store failed by itself: ${fate.cause}`) : { ok: true, kind };
    }
    case undefined: {
      const kill = faults.find((fault) => fault.kind === 'kill' && fault.pid === pid);
      if (kill === undefined) return no('it was never recorded, and its process was not killed');
      const { since: killed, until: gone } = kill;
      // A process runs on until the signal has reached it.
      if (gone < at) return no(`it began ${(at - gone).toFixed(1)} ms after its process was gone`);
      // How long the step itself takes depends on the machine and on the ledger.
      if (execution.ended === undefined) return { ok: true, kind: 'kill' };
      // A store takes as long as it takes; a process must not wait before it asks it to.
      const latest = sent === undefined ? execution.ended + GRACE : sent + LEASE;
      return killed <= latest || cause(at, killed, 0) !== undefined
        ? { ok: true, kind: 'kill' }
        : no('it had all the time to be recorded before its process was killed');
    }
  }
}

/** A process that was stopped as the store fell learns of it when it wakes. */
function sleptThrough(faults: readonly Fault[], pid: number, at: number): string | undefined {
  const stop = faults.find(
    (fault) => fault.kind === 'stop' && fault.pid === pid && fault.until <= at && at <= fault.until + WAKING,
  );
  if (stop === undefined) return undefined;
  const during = (fault: Fault): boolean =>
    fault.pid === undefined && overlap(withAftermath(fault), stop.since, stop.until) >= 0;
  return faults.find(during)?.kind;
}

function hits(fault: Fault, pid: number): boolean {
  // A connection that is cut for a moment excuses nothing.
  return fault.kind !== 'kill' && fault.kind !== 'cut' && (fault.pid === undefined || fault.pid === pid);
}

function withAftermath({ kind, since, until }: Fault): { since: number; at: number } {
  return { since, at: until + AFTERMATH[kind] };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all + one, 0);
}

function overlap(span: { since: number; at: number }, since: number, until: number): number {
  return Math.min(span.at, until) - Math.max(span.since, since);
}

function executionsIn(events: readonly Event[]): Execution[] {
  const ends = new Map<string, number>();
  for (const event of events) if (event.type === 'end') ends.set(event.run, event.received ?? event.at);
  return events.flatMap((event) => {
    if (event.type !== 'begin') return [];
    const ended = ends.get(event.run);
    return [{ ...event, ...(ended !== undefined && { ended }) }];
  });
}

function groupBy<T extends { at: number }>(
  items: readonly T[],
  keyOf: (item: T) => string,
): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of [...items].sort((one, other) => one.at - other.at)) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}
