/** What the tests of streams are made of: sinks that remember, and processes that share a store and a relay. */
import { type Clock, systemClock } from '../../src/base/values.ts';
import { type Limits, limitsOf } from '../../src/call/limits.ts';
import type { Relay } from '../../src/call/ports.ts';
import { EventStreams } from '../../src/stream/event-streams.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import type { StreamRecords } from '../../src/stream/records.ts';
import { type Projected, type Sink, Tail, type TailEnd } from '../../src/stream/tail.ts';

export const SCOPE = 'session of Ann';

export class Connection implements Sink {
  readonly data: string[] = [];
  readonly ids: string[] = [];
  ended: TailEnd | undefined;
  /** Events that it takes before it falls behind. */
  room = Infinity;
  #ready: () => void = () => {};
  /** The peer goes away. */
  leave: () => void = () => {};

  send(event: StreamEvent, id: string): boolean {
    if (this.ended !== undefined) throw new Error('an event after the end');
    this.data.push(event.data ?? '');
    this.ids.push(id);
    this.room -= 1;
    return this.room > 0;
  }

  onReady(fn: () => void): void {
    this.#ready = fn;
  }

  onClose(fn: () => void): void {
    this.leave = fn;
  }

  end(why: TailEnd): void {
    if (this.ended !== undefined) throw new Error('ended twice');
    this.ended = why;
  }

  take(room: number): void {
    this.room = room;
    this.#ready();
  }
}

export interface ProcessOptions {
  readonly records?: StreamRecords;
  readonly relay?: Relay;
  readonly clock?: Clock;
  readonly limits?: Partial<Limits>;
  readonly bytes?: { readonly all: number; readonly caller: number; readonly large: number };
  readonly warnings?: string[];
}

/** As a process of its own would make it. */
export function startProcess(options: ProcessOptions = {}): EventStreams {
  const { records, relay, clock = systemClock, limits, bytes, warnings = [] } = options;
  return new EventStreams({
    ...(records !== undefined && { records }),
    ...(relay !== undefined && { relay }),
    clock,
    bytes,
    limits: { ...limitsOf(), streamPoll: 100, ...limits },
    warn: (message, detail) => warnings.push(`${message} ${JSON.stringify(detail)}`),
  });
}

export async function follow(
  streams: EventStreams,
  id: string,
  after: number | 'new' = 0,
  scope = SCOPE,
): Promise<Connection> {
  const connection = new Connection();
  await (await streams.find(id, after, scope)).follow(connection);
  return connection;
}

export async function until(condition: () => boolean, what = 'it'): Promise<void> {
  for (let tries = 0; !condition(); tries += 1) {
    if (tries > 2_000) throw new Error(`${what} never came`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export function numbers(from: number, to: number): string[] {
  return Array.from({ length: to - from + 1 }, (_, index) => String(from + index));
}

/** What `Invalid or expired Last-Event-ID` is thrown for: why it is stays with the cause. */
export const REFUSED = { code: 'bad-token', message: 'Invalid or expired Last-Event-ID' };

/** A clock that a test sets. */
export class FakeClock implements Clock {
  time = 1_700_000_000_000;
  readonly #timers = new Set<{ at: number; fn: () => void }>();

  now(): number {
    return this.time;
  }

  elapsed(): number {
    return this.time;
  }

  after(milliseconds: number, fn: () => void) {
    const entry = { at: this.time + milliseconds, fn };
    this.#timers.add(entry);
    const timer = { cancel: () => void this.#timers.delete(entry), unref: () => timer };
    return timer;
  }

  soon(fn: () => void): void {
    setImmediate(fn);
  }

  async pass(milliseconds: number): Promise<void> {
    const until = this.time + milliseconds;
    for (;;) {
      const [next] = [...this.#timers].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at);
      if (next === undefined) break;
      this.time = Math.max(next.at, this.time);
      this.#timers.delete(next);
      next.fn();
      await new Promise((resolve) => setImmediate(resolve));
    }
    this.time = until;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** A connection that reads a log whose entries are events. */
export function tailOf(
  clock: FakeClock,
  sink: Connection,
  log: ReadonlyMap<number, Projected>,
  read = async (at: number): Promise<Projected | undefined> => log.get(at),
): Tail {
  return new Tail({
    log: { id: 'call', expires: clock.now() + 60_000, read },
    sink,
    self: 'here',
    clock,
    from: 0,
    claimed: 0,
    pace: () => undefined,
    oldest: () => undefined,
    stopped: () => {},
  });
}
