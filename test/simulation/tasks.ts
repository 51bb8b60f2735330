/**
 * Calls that are tasks: their client asks any process about them, often or seldom, and answers at any; the processes look
 * after those whose owner died.
 */
import fc from 'fast-check';
import { canonical, hasCode, type JsonObject } from '../../src/base/values.ts';
import type { NewCall } from '../../src/call/engine.ts';
import { CANCELLED, type Response } from '../../src/call/journal/entries.ts';
import type { Outcome, RequestContext } from '../../src/call/ports.ts';
import type { Tasks, TaskView } from '../../src/call/task/tasks.ts';
import { BINDING, CAPABILITIES, Cluster, LEASE, type Process } from './cluster.ts';
import { answerTo, has } from './plan.ts';
import { SimulatedRelay } from './relay.ts';
import {
  CALM,
  checkAsked,
  END,
  isTransient,
  judgeResponse,
  populate,
  type Report,
  repeatedIn,
  type Scenario,
  scenarios,
} from './scenario.ts';
import { SimulatedStore } from './store.ts';
import { World } from './world.ts';

export interface TaskScenario extends Scenario {
  readonly task: {
    /** How long its client pauses between two looks, in milliseconds. */
    readonly pause: number;
    /** When its client cancels it, in milliseconds. */
    readonly cancelled?: number | undefined;
  };
}

/** Of URLs that a tool throws its client is told in another way. */
export const taskScenarios: fc.Arbitrary<TaskScenario> = fc
  .record({
    scenario: scenarios.filter(({ plan }) => !has(plan, 'url')),
    task: fc.record({
      pause: fc.constantFrom(50, 400, 5 * LEASE),
      cancelled: fc.option(fc.nat(CALM), { nil: undefined, freq: 3 }),
    }),
  })
  .map(({ scenario, task }) => ({ ...scenario, lacks: false, task }));

class TaskClient {
  readonly #world: World;
  readonly #cluster: Cluster;
  readonly #scenario: TaskScenario;
  /** The reply to its cancellation: whether the task ended as cancelled. */
  #isCancelled: boolean | undefined;

  constructor(world: World, cluster: Cluster, scenario: TaskScenario) {
    this.#world = world;
    this.#cluster = cluster;
    this.#scenario = scenario;
  }

  async call(): Promise<void> {
    const { plan, client } = this.#scenario;
    const outcome = await this.#begin();
    if (outcome.kind === 'responded') return judgeResponse(this.#world, plan, outcome.response);
    if (outcome.kind !== 'task') return this.#world.violated(`its call is ${outcome.kind}, and no task`);
    const id = outcome.taskId;
    for (;;) {
      await this.#pause(this.#scenario.task.pause);
      const seen = await this.#send((tasks) => tasks.get(id, undefined).catch(this.#unlessAway));
      if (seen?.response !== undefined) return this.#judge(seen.response);
      await this.#cancel(id);
      if (seen === undefined || seen.asks.length === 0) continue;
      const answers = this.#answersTo(seen);
      // What it answers may be asked no more by then.
      const update = (tasks: Tasks): Promise<void> => tasks.update(id, undefined, answers).catch(() => {});
      if (this.#world.chance(client.twice)) void this.#send(update);
      await this.#send(update);
    }
  }

  async #cancel(id: string): Promise<void> {
    const { cancelled = Infinity } = this.#scenario.task;
    if (this.#world.time < cancelled || this.#isCancelled !== undefined) return;
    const cancel = (tasks: Tasks): Promise<boolean | undefined> =>
      tasks.cancel(id, undefined).catch(this.#unlessAway);
    if (this.#world.chance(this.#scenario.client.twice)) void this.#send(cancel);
    this.#isCancelled = await this.#send(cancel);
  }

  /** What it was told of its cancellation is what became of the task. */
  #judge(response: Response): void {
    const isCancelled = canonical(response) === canonical(CANCELLED);
    if (this.#isCancelled && !isCancelled) this.#world.violated('it was cancelled, and ended otherwise');
    if (!isCancelled) judgeResponse(this.#world, this.#scenario.plan, response);
    else if (this.#world.time < (this.#scenario.task.cancelled ?? Infinity))
      this.#world.violated('it ended as cancelled, and was not');
  }

  #answersTo({ asks }: TaskView): JsonObject {
    const { bad } = this.#scenario.client;
    const isBad = bad > 0 && this.#world.time < CALM && this.#world.chance(bad);
    return Object.fromEntries(
      asks.map(({ key, params }) => [
        key,
        isBad ? { action: 'accept', content: {} } : answerTo(String(params.message)),
      ]),
    );
  }

  /** Where a request gets no reply its client begins another task, and never asks about the first. */
  async #begin(): Promise<Outcome> {
    for (;;) {
      const outcome = await this.#at(({ engine }) => engine.start(this.#newCall(), CONTEXT).outcome);
      if (outcome !== undefined && outcome.kind !== 'gone' && !isTransient(outcome)) return outcome;
      await this.#pause(100);
    }
  }

  #newCall(): NewCall {
    return {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client: { capabilities: CAPABILITIES, info: {}, protocolVersion: '2026-07-28' },
      binding: BINDING,
      task: { when: 'now', after: 10_000, rounds: 1_000, always: false },
    };
  }

  readonly #unlessAway = (error: unknown): undefined => {
    if (!hasCode(error, 'store')) this.#world.violated(`its task is refused: ${String(error)}`);
  };

  /** @returns undefined where no reply came */
  #send<T>(ask: (tasks: Tasks) => Promise<T>): Promise<T | undefined> {
    return this.#at(({ engine: { tasks } }) => {
      if (tasks === undefined) throw new Error('no tasks');
      return ask(tasks);
    });
  }

  /** At some process. @returns undefined where no reply came */
  #at<T>(serve: (process: Process) => Promise<T>): Promise<T | undefined> {
    const world = this.#world;
    const { processes } = this.#cluster;
    const process = processes[Math.floor(world.random() * processes.length)] as Process;
    const { life, engine, clock, skew } = process;
    const delay = (): number => world.between(0.1, 3);
    return new Promise((resolve) => {
      let isDone = false;
      const end = (reply: T | undefined): void => {
        isDone = true;
        resolve(reply);
      };
      const replied = (reply: T): void =>
        void world.after(delay(), () => end(life.dead && world.chance(0.5) ? undefined : reply));
      world.after(delay(), () => void serve({ life, engine, clock, skew }).then(replied), life);
      const watch = (): void => {
        if (isDone) return;
        if (life.dead) end(undefined);
        else world.after(50, watch);
      };
      watch();
      world.after(world.time > CALM ? 60_000 : this.#scenario.client.patience, () => end(undefined));
    });
  }

  #pause(time: number): Promise<void> {
    return new Promise((resolve) => this.#world.after(this.#world.between(0.5, 1.5) * time, resolve));
  }
}

const CONTEXT: RequestContext = {
  live: false,
  takesTasks: true,
  sheds: true,
  capabilities: CAPABILITIES,
  notify: () => {},
};

export async function playTask(scenario: TaskScenario): Promise<Report> {
  const world = new World(scenario.seed);
  const store = new SimulatedStore(world, scenario.outages, scenario.pace);
  const relay = new SimulatedRelay(world, scenario.weather ?? { loss: 0, twice: 0, delay: 1 });
  const { plan, frames, weather } = scenario;
  const relayed = weather !== undefined;
  const cluster = new Cluster(world, store, relay, { plan, carry: false, frames, relayed, tasks: true });
  populate(world, cluster, scenario);
  let over = false;
  void new TaskClient(world, cluster, scenario).call().then(
    () => {
      over = true;
    },
    (error: unknown) => world.violated(`the client failed: ${String(error)}`),
  );
  await world.run(() => over, END);
  if (!over) world.violated('the task neither ended nor waits for its user');
  checkAsked(world, store);
  return { violations: world.violations, repeated: repeatedIn(cluster), time: world.time };
}
