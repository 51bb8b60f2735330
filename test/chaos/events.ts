/**
 * The events that the ledger records. Every time is of the machine's monotonic clock, in milliseconds: one clock for
 * all processes, whatever their `Date` shows.
 */
import process from 'node:process';

/**
 * How long an owner may be silent, in milliseconds. With 200 tasks in work on two cores a sign of life may be late by
 * more than the short one.
 */
export const LEASE = Number(process.env.CHAOS_LEASE ?? (process.argv.includes('tasks') ? 5_000 : 1_500));
/** Longest a step's effect takes, in milliseconds. */
export const LONGEST_STEP = 220;

export function clock(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** An effect on the world outside, under its idempotency key; `run` is one execution of the step. */
export interface Effect {
  readonly type: 'begin' | 'end';
  readonly call: string;
  readonly step: string;
  readonly key: string;
  readonly run: string;
  readonly pid: number;
  readonly at: number;
  /** When the ledger had it: the step waits for that. */
  readonly received?: number;
}

/** What became of an entry that a process wrote into a journal. */
export interface Append {
  readonly type: 'append';
  readonly call: string;
  readonly entry: string;
  /** The execution whose result it records. */
  readonly run?: string;
  readonly outcome: 'written' | 'fenced' | 'store';
  readonly cause?: string;
  readonly pid: number;
  readonly since: number;
  readonly at: number;
}

/** A step's result is on its way into a journal. */
interface Appending {
  readonly type: 'appending';
  readonly run: string;
  readonly at: number;
}

/** The store failed; what was asked of it is tried again. */
interface Outage {
  readonly type: 'outage';
  readonly cause: string;
  readonly pid: number;
  readonly at: number;
}

/** The event loop of a process stood still. */
export interface Stall {
  readonly type: 'stall';
  readonly pid: number;
  readonly since: number;
  readonly at: number;
}

/** A call's tool began, and nothing of the call is kept yet. */
interface Moment {
  readonly type: 'moment';
  readonly call: string;
  readonly pid: number;
  readonly at: number;
}

export type Event = Effect | Append | Appending | Outage | Stall | Moment;

type FaultKind = 'kill' | 'stop' | 'restart' | 'slow' | 'full' | 'cut';

/** A fault of a process, or of the store (no `pid`). A kill lasts until the process is gone. */
export interface Fault {
  readonly kind: FaultKind;
  readonly pid?: number;
  readonly since: number;
  until: number;
}
