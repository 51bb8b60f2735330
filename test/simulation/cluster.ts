/** Simulated processes: each an engine with a clock of its own, on one store and one relay. */
import { AwaitError, type Clock, canonical, type JsonObject } from '../../src/base/values.ts';
import { Engine, type EngineParts, type NewCall } from '../../src/call/engine.ts';
import type { Frame } from '../../src/call/frame/frame.ts';
import { idempotencyKey } from '../../src/call/frame/steps.ts';
import type { Response } from '../../src/call/journal/entries.ts';
import { limitsOf } from '../../src/call/limits.ts';
import type { Binding, Instance, Outcome, RequestContext, TokenState } from '../../src/call/ports.ts';
import { type Sweeper, sweepTasks } from '../../src/call/task/sweeper.ts';
import { type Plan, runPlan } from './plan.ts';
import type { SimulatedRelay } from './relay.ts';
import type { SimulatedStore } from './store.ts';
import type { Life, World } from './world.ts';

export interface ClusterOptions {
  readonly plan: Plan;
  readonly carry: boolean;
  readonly frames: number;
  readonly relayed: boolean;
  /** Whether its calls are live, so that nothing runs before a call is written. */
  readonly live?: true;
  /** What a process has of the page on which a person answers. */
  readonly page?: (
    life: Life,
    clock: Clock,
    engine: () => Engine,
  ) => Pick<EngineParts, 'route' | 'outlasts' | 'time'>;
  /** Whether its calls are tasks, which processes look after. */
  readonly tasks?: true;
  /** What its client declares. */
  readonly declares?: JsonObject;
  /** Until when the first process is of a version that has not the tool, in milliseconds. */
  readonly lacksUntil?: number;
}

/** What such a process says. */
const LACKING = { code: -32602, message: 'Tool not found' };

/** Whether a process says that it has not the tool. */
export function isLack(response: Response): boolean {
  return 'error' in response && response.error.message === LACKING.message;
}

export const LEASE = 1_000;
export const BINDING: Binding = { revision: 'simulated', method: 'tools/call', target: 'tool', args: 'none' };
export const CAPABILITIES = { elicitation: { form: {}, url: {} } };

/** When a fault may strike: at a tool's event (a step begins or ends, an answer arrives), or at a store operation. */
export type Moment = 'tool' | 'store';

interface Then {
  readonly of: Moment;
  readonly nth: number;
  readonly crash: boolean;
  readonly for: number;
}

interface Attempt {
  readonly life: Life;
  readonly at: number;
}

/** A process that comes back after it died, under the same name, with nothing in its memory. */
export interface Process {
  life: Life;
  engine: Engine;
  clock: Clock;
  readonly skew: { value: number };
}

/** A simulated answer has a text. */
export const CHECK: EngineParts['check'] = {
  isResult: () => true,
  keeps: (_schema, content) => typeof (content as JsonObject).a === 'string',
  unfit: () => undefined,
};

export class Cluster {
  readonly processes: Process[] = [];
  /** URLs that the client's user was at. */
  readonly visited = new Set<string>();
  /** The ids of tasks, as the index has them. */
  readonly tasks: string[] = [];
  /** Every effect that was begun, by idempotency key. */
  readonly effects = new Map<string, Attempt[]>();
  readonly #later: Then[] = [];
  readonly #moments = { tool: 0, store: 0 };
  readonly #world: World;
  readonly #store: SimulatedStore;
  readonly #relay: SimulatedRelay;
  readonly #options: ClusterOptions;

  constructor(world: World, store: SimulatedStore, relay: SimulatedRelay, options: ClusterOptions) {
    this.#world = world;
    this.#store = store;
    this.#relay = relay;
    this.#options = options;
    store.onAsked = (life) => this.#moment(life, 'store');
  }

  /** Strikes the process in which something happens for the nth time. */
  strikeThen(fault: Then): void {
    this.#later.push(fault);
  }

  /** An event in a process, at which a fault may kill or pause it. */
  #moment(life: Life, of: Moment = 'tool'): void {
    this.#moments[of] += 1;
    for (const fault of this.#later) {
      if (fault.of !== of || fault.nth !== this.#moments[of]) continue;
      const nth = this.processes.findIndex((process) => process.life === life);
      if (fault.crash) this.crash(nth, fault.for);
      else this.sleep(nth, fault.for);
    }
  }

  add(skew: number): void {
    const name = `p${this.processes.length}`;
    const offset = { value: skew };
    this.processes.push({ ...this.#live(name, offset), skew: offset });
  }

  /** Loses all of its memory; store operations already sent may still take effect. */
  crash(nth: number, downFor: number): void {
    const process = this.processes[nth];
    if (process === undefined || process.life.dead) return;
    process.life.dead = true;
    process.life.disturbed = true;
    this.#world.after(downFor, () => Object.assign(process, this.#live(process.life.name, process.skew)));
  }

  sleep(nth: number, time: number): void {
    const process = this.processes[nth];
    if (process === undefined || process.life.dead) return;
    process.life.asleepUntil = Math.max(process.life.asleepUntil, this.#world.time + time);
    if (time > LEASE / 2) process.life.disturbed = true;
  }

  /** One POST: undefined when its connection broke, or its client lost patience. */
  post(
    nth: number,
    turn: { token: string; responses: JsonObject } | undefined,
    patience: number,
    isAble = true,
  ): Promise<Outcome | undefined> {
    const world = this.#world;
    return new Promise((resolve) => {
      const process = this.processes[nth];
      let done = false;
      const end = (outcome: Outcome | undefined): void => {
        done = true;
        resolve(outcome);
      };
      world.after(world.between(0.1, 3), () => {
        if (process === undefined || process.life.dead) {
          end(undefined);
          return;
        }
        const { life, engine } = process;
        const gone = new AbortController();
        world.after(0, () => void this.#serve(engine, turn, gone.signal, isAble).then(reply), life);
        const reply = (outcome: Outcome): void => {
          world.after(world.between(0.1, 3), () => end(life.dead && world.chance(0.5) ? undefined : outcome));
        };
        world.after(patience, () => {
          if (done) return;
          end(undefined);
          world.after(world.between(0.1, 3), () => gone.abort(), life);
        });
        const watch = (): void => {
          if (done) return;
          if (life.dead) end(undefined);
          else world.after(50, watch);
        };
        watch();
      });
    });
  }

  async #serve(
    engine: Engine,
    turn: { token: string; responses: JsonObject } | undefined,
    signal: AbortSignal,
    isAble: boolean,
  ): Promise<Outcome> {
    const { declares = CAPABILITIES, page } = this.#options;
    const capabilities = isAble ? declares : {};
    const sheds = page !== undefined;
    const context: RequestContext = {
      live: false,
      refuses: true,
      sheds,
      capabilities,
      signal,
      notify: () => {},
    };
    if (turn !== undefined) {
      const outcome = await engine.resume(turn.token, BINDING, turn.responses, context);
      this.#isWritten(turn.token, outcome);
      return outcome;
    }
    const client = { capabilities: declares, info: {}, protocolVersion: '2025-11-25' };
    const call: NewCall = {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client,
      binding: BINDING,
    };
    return engine.start(call, context).outcome;
  }

  /** Written before told (invariant 11). */
  #isWritten(token: string, outcome: Outcome): void {
    if (outcome.kind === 'gone' || (outcome.kind === 'responded' && 'error' in outcome.response)) return;
    const { state } = JSON.parse(outcome.kind === 'suspended' ? outcome.token : token) as {
      state: TokenState;
    };
    const journal = this.#store.of(state.callId);
    const written = outcome.kind === 'suspended' ? journal[state.at] : journal.at(-1);
    const wanted = outcome.kind === 'suspended' ? 'suspended' : 'ended';
    if (written?.entry.type !== wanted) {
      this.#world.violated(`a client is told that its call is ${wanted} before it is written`);
    }
  }

  #live(name: string, skew: { value: number }): { life: Life; engine: Engine; clock: Clock } {
    const world = this.#world;
    const life: Life = { name, dead: false, asleepUntil: 0, disturbed: false };
    const clock = world.clockOf(life, skew);
    const { carry, frames, relayed } = this.#options;
    const store = this.#store.for(life, clock, LEASE);
    let sweeper: Sweeper | undefined;
    const engine: Engine = new Engine({
      store,
      began: async ({ id }) => void this.tasks.push(id),
      watch: (id) => sweeper?.watch(id),
      received: (callId, at, entry) => this.#store.hooks.get(life)?.received(callId, at, entry),
      tokens: TOKENS,
      carry,
      check: CHECK,
      isRefusal: isLack,
      frame: {
        drift: 'ask',
        askDelay: 600,
        replayGrace: 2_000,
        maxAsks: 1_000,
        maxHeldNotifications: 100,
        clock,
        warn: () => {},
        doneTwice: () => {},
      },
      limits: {
        ...limitsOf(),
        frames,
        lease: LEASE,
        turnWait: 8_000,
        handoffWait: 50,
        rounds: 1_000,
        reruns: 1_000,
      },
      ttl: 3_600_000_000,
      replay: () => 'allow',
      onDrop: 'forget',
      clock,
      count: () => {},
      log: () => {},
      ...(relayed && {
        handoff: { relay: this.#relay.for(life), seal: (message) => JSON.stringify(message), open: parse },
      }),
      ...this.#options.page?.(life, clock, () => engine),
      openInstance: async () => this.#instance(life, clock),
    });
    const { tasks } = engine;
    if (tasks !== undefined && this.#options.tasks) {
      let seen = 0;
      sweeper = sweepTasks({
        clock,
        lease: LEASE,
        added: async () => {
          const from = seen;
          seen = this.tasks.length;
          return this.tasks.slice(from);
        },
        store,
        progress: (id, from) => tasks.progress(id, from),
        runsHere: (id) => tasks.runs(id),
        hasRoom: () => true,
        takeUp: (call, at) => engine.takeUpTask(call, at),
        failed: () => {},
      });
    }
    return { life, engine, clock };
  }

  #instance(life: Life, clock: Clock): Instance {
    const wait = (time: number) => new Promise<void>((resolve) => clock.after(time, resolve));
    return {
      call: (frame: Frame) => {
        // One that was opened for a request may run a call that outlasts it.
        const callId = frame.call.id;
        if (life.name === 'p0' && this.#world.time < (this.#options.lacksUntil ?? 0)) {
          frame.finish({ error: LACKING });
          return;
        }
        runPlan(this.#options.plan, frame, {
          wait,
          begin: (path, key) => {
            if (key !== idempotencyKey(callId, path)) this.#world.violated(`the key of ${path} changed`);
            this.#begin(callId, path, key, life);
            this.#moment(life);
          },
          toldStep: (path) => {
            this.#moment(life);
            const isWritten = this.#store
              .of(callId)
              .some(
                ({ entry }) =>
                  entry.type === 'completed' &&
                  entry.completion.kind === 'step' &&
                  entry.completion.path === path,
              );
            if (!isWritten) this.#world.violated(`the tool is told of ${path} before it is written`);
          },
          toldAnswer: (answer) => {
            this.#moment(life);
            const isWritten = this.#store
              .of(callId)
              .some(
                ({ entry }) =>
                  ['claimed', 'completed'].includes(entry.type) && JSON.stringify(entry).includes(answer),
              );
            if (!isWritten) this.#world.violated(`the tool is told '${answer}' before it is written`);
          },
          wasAt: (url) => this.visited.has(url),
        });
      },
      refresh: () => {},
      cancel: () => {},
      release: () => {},
    };
  }

  /** An effect begins: is it this process's to do, and is it still to be done? */
  #begin(callId: string, path: string, key: string, life: Life): void {
    const journal = this.#store.of(callId);
    const who = `${life.name} does ${path}`;
    for (const { entry } of journal) {
      if (entry.type !== 'completed' || entry.completion.kind !== 'step') continue;
      if (entry.completion.path === path) this.#world.violated(`${who}, which is completed`);
    }
    const turn = journal.findLast(({ entry }) =>
      ['called', 'claimed', 'suspended', 'left', 'ended'].includes(entry.type),
    );
    // Steps inside of a step that began in its turn belong to that step.
    const outer = path.includes('/')
      ? this.effects.get(idempotencyKey(callId, path.split('/')[0] ?? ''))
      : [];
    const isInside = outer?.at(-1)?.life === life;
    if (turn !== undefined && !['called', 'claimed'].includes(turn.entry.type) && !isInside) {
      this.#world.violated(`${who} behind the gate: the journal says ${turn.entry.type}`);
    }
    if (turn === undefined && this.#options.live) this.#world.violated(`${who} before its call is written`);
    if (turn !== undefined && turn.by !== life) this.#world.violated(`${who} in a turn of ${turn.by.name}`);
    const attempts = this.effects.get(key) ?? [];
    const before = attempts.at(-1);
    if (before !== undefined && !before.life.disturbed) {
      this.#world.violated(`${who} again, though nothing happened to ${before.life.name}`);
    }
    this.effects.set(key, [...attempts, { life, at: this.#world.time }]);
  }
}

/** Tokens in plain text: the engine does not seal. */
const TOKENS = {
  seal: async (state: TokenState, binding: Binding) => JSON.stringify({ state, binding }),
  open: async (token: string, binding: Binding): Promise<TokenState> => {
    const opened = JSON.parse(token) as { state: TokenState; binding: Binding };
    if (canonical(opened.binding) !== canonical(binding)) throw new AwaitError('bad-token', 'of another');
    return opened.state;
  },
};

async function parse(text: string): Promise<JsonObject> {
  return JSON.parse(text) as JsonObject;
}
