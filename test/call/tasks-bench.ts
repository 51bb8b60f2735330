/** Processes that share tasks: each sees the one store through a door of its own, which may close. */
import type { Clock, Json, JsonObject } from '../../src/base/values.ts';
import type { Entry, OpenAsk, Response, TaskWish } from '../../src/call/journal/entries.ts';
import type { Outcome, RequestContext } from '../../src/call/ports.ts';
import type { TaskView } from '../../src/call/task/tasks.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';
import {
  accept,
  BINDING,
  type MemoryStore,
  pause,
  requestContextOf,
  type Tool,
  type Workbench,
  type WorkbenchOptions,
  workbench,
  wrapped,
} from './bench.ts';

export const LEASE = 90;

export interface Process extends Workbench {
  readonly store: MemoryStore;
  /** It crashed: nothing that it waits for ever comes. */
  die(): void;
  /** Its event loop stands still, while time does not. */
  sleep(): void;
  wake(): void;
  readonly began: string[];
  readonly watched: string[];
}

const never = <T>(): Promise<T> => new Promise<T>(() => {});

export function processOf(tool: Tool, shared: MemoryStore, options: WorkbenchOptions = {}): Process {
  let dead = false;
  let asleep: (() => void)[] | undefined;
  const alive = async <T>(fn: () => Promise<T>): Promise<T> => {
    if (dead) return never<T>();
    const value = await fn();
    return dead ? never<T>() : value;
  };
  const store: MemoryStore = Object.create(shared);
  const awake = (fn: () => void) => (): void => {
    if (asleep === undefined) fn();
    else asleep.push(fn);
  };
  const clock: Clock = {
    ...steadyClock,
    after: (milliseconds, fn) => steadyClock.after(milliseconds, awake(fn)),
    soon: (fn) => steadyClock.soon(awake(fn)),
  };
  const began: string[] = [];
  const watched: string[] = [];
  Object.assign(store, {
    before: (entry: Entry) => shared.before(entry),
    after: (entry: Entry) => shared.after(entry),
    open: (...args: Parameters<MemoryStore['open']>) => {
      const journal = Object.getPrototypeOf(shared).open.apply(store, args) as ReturnType<
        MemoryStore['open']
      >;
      return wrapped(journal, { write: alive, read: alive, beat: alive });
    },
    read: (...args: Parameters<MemoryStore['read']>) => alive(() => shared.read(...args)),
    heard: (...args: Parameters<MemoryStore['heard']>) => alive(() => shared.heard(...args)),
    insertEntry: (...args: Parameters<MemoryStore['insertEntry']>) =>
      alive(() => Object.getPrototypeOf(shared).insertEntry.apply(store, args)),
    beat: (...args: Parameters<MemoryStore['beat']>) => alive(() => shared.beat(...args)),
  });
  const bench = workbench(tool, {
    store,
    clock,
    ...options,
    frame: { clock, ...options.frame },
    limits: { lease: LEASE, drain: 100, ...options.limits },
    parts: {
      began: async (call) => void began.push(call.id),
      watch: (id) => void watched.push(id),
      ...options.parts,
    },
  });
  return {
    ...bench,
    store,
    began,
    watched,
    die: () => {
      dead = true;
    },
    sleep: () => {
      asleep ??= [];
    },
    wake: () => {
      const missed = asleep ?? [];
      asleep = undefined;
      for (const fn of missed) fn();
    },
  };
}

export const wish = (more: Partial<TaskWish> = {}): TaskWish => ({
  when: 'now',
  after: 10_000,
  rounds: 9,
  always: false,
  ...more,
});

export const taskLeg = (more: Partial<RequestContext> = {}): RequestContext =>
  requestContextOf({ takesTasks: true, sheds: true, ...more });

export function begin({ engine }: Process, task: TaskWish, context: RequestContext = taskLeg()) {
  return engine.start(
    {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client: { capabilities: context.capabilities, info: {}, protocolVersion: '2025-11-25' },
      binding: BINDING,
      task,
    },
    context,
  );
}

export function taskOf(outcome: Outcome): string {
  if (outcome.kind !== 'task') throw new Error(`no task: ${JSON.stringify(outcome)}`);
  return outcome.taskId;
}

export const view = ({ engine }: Process, id: string): Promise<TaskView> => {
  if (engine.tasks === undefined) throw new Error('no tasks');
  return engine.tasks.get(id, undefined);
};

export const update = ({ engine }: Process, id: string, responses: JsonObject): Promise<void> =>
  engine.tasks?.update(id, undefined, responses) ?? Promise.resolve();

/** Waits until a task is as wanted, however the process looks at it. */
export async function viewed(
  process: Process,
  id: string,
  wanted: (seen: TaskView) => boolean,
): Promise<TaskView> {
  for (let tries = 0; ; tries += 1) {
    const seen = await view(process, id);
    if (wanted(seen)) return seen;
    if (tries > 1_000) throw new Error(`it never came: ${JSON.stringify(seen)}`);
    await pause();
  }
}

export const isAsking = (seen: TaskView): boolean => seen.status === 'input_required';
export const isOver = (seen: TaskView): boolean => seen.response !== undefined;

export const accepted = (asks: readonly OpenAsk[]): JsonObject =>
  Object.fromEntries(asks.map((ask) => [ask.key, accept(ask)])) as JsonObject;

/** Takes a task up as the sweeper does, once its owner has been seen to be silent. */
export async function sweep(process: Process, id: string): Promise<Outcome | undefined> {
  const found = await process.engine.tasks?.progress(id);
  if (found === undefined) return undefined;
  return process.engine.takeUpTask(found.call, found.at);
}

/** Answers all that a task asks, until it is over. */
export async function serve(process: Process, id: string): Promise<Response> {
  for (;;) {
    const seen = await viewed(process, id, (task) => isAsking(task) || isOver(task));
    if (seen.response !== undefined) return seen.response;
    await update(process, id, accepted(seen.asks));
    const keys = seen.asks.map(({ key }) => key);
    await viewed(process, id, (task) => isOver(task) || !task.asks.some(({ key }) => keys.includes(key)));
  }
}

export function resultIn(response: Response | undefined): Json | undefined {
  if (response === undefined || !('result' in response)) {
    throw new Error(`no result: ${JSON.stringify(response)}`);
  }
  return response.result.value as Json;
}
