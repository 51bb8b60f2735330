/**
 * One scenario: a random tool on a few processes, with faults; a stubborn client, and one that lies. What must
 * hold of every one of them is checked as it runs and at its end.
 */
import fc from 'fast-check';
import { canonical, isObject, type JsonObject } from '../../src/base/values.ts';
import type { OpenAsk, Response } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { Cluster, type ClusterOptions, isLack, type Moment } from './cluster.ts';
import { answerTo, expected, has, isDeterministic, type Plan, plans, racesTimers } from './plan.ts';
import { SimulatedRelay, type Weather } from './relay.ts';
import { type Outage, SimulatedStore } from './store.ts';
import { World } from './world.ts';

type Fault =
  | { readonly kind: 'crash'; readonly process: number; readonly at: number; readonly for: number }
  | { readonly kind: 'sleep'; readonly process: number; readonly at: number; readonly for: number }
  /** Strikes the process in which something happens for the nth time. */
  | {
      readonly kind: 'then';
      readonly of: Moment;
      readonly nth: number;
      readonly crash: boolean;
      readonly for: number;
    }
  | { readonly kind: 'jump'; readonly process: number; readonly at: number; readonly by: number };

export interface Scenario {
  readonly seed: number;
  readonly plan: Plan;
  readonly carry: boolean;
  readonly frames: number;
  readonly skews: readonly number[];
  readonly weather: Weather | undefined;
  readonly faults: readonly Fault[];
  readonly outages: readonly Outage[];
  /** How slow the store is: 0 answers at once. */
  readonly pace: number;
  /** Whether a process has not the tool until the end of a deploy. */
  readonly lacks?: boolean;
  readonly client: {
    /** Probabilities: of a second POST beside the first, and of one with other answers. */
    readonly twice: number;
    readonly lies: number;
    /** Of an answer that breaks its schema, and of a POST of a client that cannot be asked anything. */
    readonly bad: number;
    readonly unable: number;
    /** How long it waits for a reply, in milliseconds. */
    readonly patience: number;
  };
}

/** When nothing goes wrong any more, and by when all must be over. */
export const CALM = 12_000;
export const END = 900_000;
const often = fc.constantFrom(0, 0, 0.1, 0.5);

const trouble = {
  process: fc.nat(2),
  at: fc.oneof(fc.nat(200), fc.nat(CALM)),
  for: fc.constantFrom(1, 60, 700, 1_500, 5_000),
};

const faults: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({ kind: fc.constant('crash' as const), ...trouble }),
  fc.record({ kind: fc.constant('sleep' as const), ...trouble }),
  fc.record({
    kind: fc.constant('then' as const),
    of: fc.constantFrom('tool' as const, 'store' as const),
    nth: fc.nat(16),
    crash: fc.boolean(),
    for: fc.constantFrom(60, 1_500, 5_000),
  }),
  fc.record({
    kind: fc.constant('jump' as const),
    process: fc.nat(2),
    at: fc.nat(CALM),
    by: fc.constantFrom(-3_600_000, -500, 500, 3_600_000),
  }),
);

const outages: fc.Arbitrary<Outage> = fc
  .record({
    from: fc.oneof(fc.nat(40), fc.nat(CALM)),
    lasts: fc.constantFrom(2, 20, 500, 3_000, 8_000),
    mode: fc.constantFrom('before' as const, 'after' as const, 'after' as const, 'slow' as const),
  })
  .map(({ from, lasts, mode }) => ({ from, to: from + lasts, mode }));

export const scenarios: fc.Arbitrary<Scenario> = fc
  .record({
    seed: fc.nat(),
    plan: plans,
    carry: fc.boolean(),
    frames: fc.constantFrom(0, 100),
    skews: fc.array(fc.constantFrom(0, 0, -60_000, 60_000), { minLength: 2, maxLength: 3 }),
    weather: fc.option(fc.record({ loss: often, twice: often, delay: fc.constantFrom(1, 10, 200) }), {
      nil: undefined,
    }),
    faults: fc.oneof(fc.constant([]), fc.array(faults, { maxLength: 6 })),
    outages: fc.oneof(fc.constant([]), fc.array(outages, { maxLength: 2 })),
    pace: fc.constantFrom(1, 1, 0),
    client: fc.record({
      twice: often,
      lies: fc.constantFrom(0, 0, 0.5, 1),
      bad: often,
      unable: fc.constantFrom(0, 0, 0.2),
      patience: fc.constantFrom(400, 2_000, 3_000),
    }),
  })
  .map((scenario) => ({ ...scenario, lacks: scenario.seed % 4 === 3 }));

export interface Report {
  readonly violations: readonly string[];
  /** Effects that were begun more than once, all of them where something cut the first attempt off. */
  readonly repeated: number;
  readonly time: number;
}

export async function play(scenario: Scenario): Promise<Report> {
  const world = new World(scenario.seed);
  const store = new SimulatedStore(world, scenario.outages, scenario.pace);
  const relay = new SimulatedRelay(world, scenario.weather ?? { loss: 0, twice: 0, delay: 1 });
  const { plan, carry, frames, weather } = scenario;
  const cluster = new Cluster(world, store, relay, {
    plan,
    carry,
    frames,
    relayed: weather !== undefined,
    ...lackOf(scenario),
  });
  populate(world, cluster, scenario);
  let over = false;
  const client = new Client(world, cluster, scenario);
  void client.call().then(
    () => {
      over = true;
    },
    (error: unknown) => {
      world.violated(`the client failed: ${String(error)}`);
    },
  );
  await world.run(() => over, END);
  if (!over) world.violated('the call neither ended nor waits for its user');
  if (over && world.violations.length === 0) await client.lookAgain();
  const { last } = client;
  if (last !== undefined && world.violations.length === 0)
    await replay(world, store, scenario, last, cluster.visited);
  return { violations: world.violations, repeated: repeatedIn(cluster), time: world.time };
}

/** A tool that throws a URL has recorded nothing by which its call could be known. */
export function lackOf({ lacks = false, plan }: Scenario): Pick<ClusterOptions, 'lacksUntil'> {
  return lacks && !has(plan, 'url') ? { lacksUntil: CALM } : {};
}

/** A live result equals a replayed one: the last turn again, from what the journal has before its outcome. */
async function replay(
  live: World,
  store: SimulatedStore,
  scenario: Scenario,
  last: Turn,
  visited: ReadonlySet<string>,
): Promise<void> {
  const { plan, carry } = scenario;
  const { outcome, token, responses } = last;
  const hasResult = outcome.kind === 'responded' && 'result' in outcome.response;
  if (!hasResult || racesTimers(plan)) return;
  const world = new World(scenario.seed);
  const copy = store.upToOutcome(world);
  const relay = new SimulatedRelay(world, { loss: 0, twice: 0, delay: 1 });
  const cluster = new Cluster(world, copy, relay, { plan, carry, frames: 0, relayed: false });
  cluster.add(0);
  for (const url of visited) cluster.visited.add(url);
  let again: Outcome | undefined;
  void cluster.post(0, { token, responses }, END).then((replayed) => {
    again = replayed;
  });
  await world.run(() => again !== undefined, END);
  for (const violation of world.violations) live.violated(`replayed, ${violation}`);
  const [one, other] = [canonical(told(outcome)), canonical(again && told(again))];
  if (one !== other) live.violated(`live it came to ${one}, replayed to ${other}`);
}

interface Turn {
  readonly token: string;
  readonly responses: JsonObject;
  readonly outcome: Outcome;
}

/** The scenario's processes, and the faults that they get. */
export function populate(world: World, cluster: Cluster, { skews, faults }: Scenario): void {
  for (const skew of skews) cluster.add(skew);
  for (const fault of faults) {
    if (fault.kind === 'then') cluster.strikeThen(fault);
    else world.at(fault.at, () => strike(cluster, fault));
  }
}

/** Effects that were begun more than once. */
export function repeatedIn({ effects }: Cluster): number {
  return [...effects.values()].filter((attempts) => attempts.length > 1).length;
}

function strike(cluster: Cluster, fault: Exclude<Fault, { kind: 'then' }>): void {
  const { process } = fault;
  if (fault.kind === 'crash') cluster.crash(process, fault.for);
  else if (fault.kind === 'sleep') cluster.sleep(process, fault.for);
  else {
    const found = cluster.processes[process];
    if (found !== undefined) found.skew.value += fault.by;
  }
}

class Client {
  readonly #world: World;
  readonly #cluster: Cluster;
  readonly #scenario: Scenario;
  /** Keys of asks whose answers led to a reply: they must not be asked again. */
  readonly #acknowledged = new Set<string>();
  /** The outcome of a token with its answers. */
  readonly #outcomes = new Map<string, string>();
  /** The turn that ended it. */
  last: Turn | undefined;

  constructor(world: World, cluster: Cluster, scenario: Scenario) {
    this.#world = world;
    this.#cluster = cluster;
    this.#scenario = scenario;
  }

  async call(): Promise<void> {
    let outcome = await this.#begin();
    while (outcome.kind === 'suspended') {
      const { asks, token } = outcome;
      if (asks.length === 0) this.#world.violated('a call is suspended without asks');
      for (const { key } of asks) {
        if (this.#acknowledged.has(key)) this.#world.violated(`${key} is asked again`);
      }
      const responses = Object.fromEntries(asks.map((ask) => [ask.key, this.#answer(ask)]));
      const lied = this.#scenario.client.lies > 0 && this.#world.chance(this.#scenario.client.lies);
      if (lied) this.#lie(token, responses);
      if (this.#world.chance(this.#scenario.client.twice)) void this.#insist(token, responses, false);
      const next = await this.#insist(token, responses, lied);
      if (next === undefined) return;
      for (const { key } of asks) this.#acknowledged.add(key);
      this.last = { token, responses, outcome: next };
      outcome = next;
    }
    this.#judge(outcome);
  }

  /** At the end, the same turn has the same outcome at any process. */
  async lookAgain(): Promise<void> {
    if (this.last === undefined) return;
    const { token, responses } = this.last;
    let done = false;
    void this.#insist(token, responses, false).then(() => {
      done = true;
    });
    await this.#world.run(() => done, END * 2);
    if (!done) this.#world.violated('a turn that is over has no outcome');
  }

  /** A client without a token cannot resume: a first POST without a reply is a call that never began. */
  async #begin(): Promise<Outcome> {
    for (;;) {
      const outcome = await this.#cluster.post(this.#somewhere(), undefined, this.#patience);
      if (outcome !== undefined && outcome.kind !== 'gone' && !isTransient(outcome)) return outcome;
      await this.#pause();
    }
  }

  /** @returns undefined when a lie was there first */
  async #insist(token: string, responses: JsonObject, lied: boolean): Promise<Outcome | undefined> {
    for (;;) {
      const { unable } = this.#scenario.client;
      const isAble = unable === 0 || this.#world.time > CALM || !this.#world.chance(unable);
      const turn = { token, responses };
      const outcome = await this.#cluster.post(this.#somewhere(), turn, this.#patience, isAble);
      if (outcome !== undefined && outcome.kind !== 'gone' && !isTransient(outcome)) {
        if (isRefusal(outcome) && lied) return undefined;
        this.#compare(token, responses, outcome);
        return outcome;
      }
      await this.#pause();
    }
  }

  #answer({ params }: OpenAsk): JsonObject {
    const { bad } = this.#scenario.client;
    if (params.mode === 'url') {
      this.#cluster.visited.add(String(params.url));
      return { action: 'accept' };
    }
    // Some users never learn; this one does in the end.
    if (bad > 0 && this.#world.time < CALM && this.#world.chance(bad))
      return { action: 'accept', content: {} };
    return answerTo(String(params.message));
  }

  /** Somebody else has the token too, and other answers. */
  #lie(token: string, responses: JsonObject): void {
    const lies = Object.fromEntries(Object.keys(responses).map((key) => [key, { action: 'decline' }]));
    void this.#cluster.post(this.#somewhere(), { token, responses: lies }, 1_000);
  }

  #compare(token: string, responses: JsonObject, outcome: Outcome): void {
    const key = canonical([token, responses]);
    const shown = canonical(
      outcome.kind === 'suspended' ? outcome.asks.map((ask) => ask.key).sort() : told(outcome),
    );
    const before = this.#outcomes.get(key);
    if (before !== undefined && before !== shown) {
      this.#world.violated(`one turn has two outcomes: ${before} and ${shown}`);
    }
    this.#outcomes.set(key, shown);
  }

  #judge(outcome: Outcome): void {
    if (outcome.kind === 'responded') judgeResponse(this.#world, this.#scenario.plan, outcome.response);
  }

  /** A client that never waits long enough would never see the end of a step. */
  get #patience(): number {
    return this.#world.time > CALM ? 60_000 : this.#scenario.client.patience;
  }

  #somewhere(): number {
    return Math.floor(this.#world.random() * this.#cluster.processes.length);
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => this.#world.after(this.#world.between(5, 200), resolve));
  }
}

/** The result of a tool that depends on nothing but its answers is known. */
export function judgeResponse(world: World, plan: Plan, response: JsonObject | Response): void {
  if ('error' in response) {
    // A timer that no journal records may win on one process and lose on the other.
    if (!racesTimers(plan)) world.violated(`it ended with ${JSON.stringify(response.error)}`);
  } else if (isDeterministic(plan)) {
    const wanted = canonical(expected(plan));
    const got = canonical(isObject(response.result) ? response.result.value : undefined);
    if (got !== wanted) world.violated(`its result is ${got}, not ${wanted}`);
  }
}

/** No ask goes out whose answer is in its log. */
export function checkAsked(world: World, store: SimulatedStore): void {
  for (const journal of store.journals.values()) {
    const answered = new Set<string>();
    for (const { entry, by } of journal) {
      if (entry.type === 'completed' && entry.completion.kind === 'answer')
        answered.add(entry.completion.key);
      if (entry.type === 'asked' && answered.has(entry.ask.key))
        world.violated(`${by.name} asks ${entry.ask.key}, whose answer was taken in`);
    }
  }
}

/** The client's view of an outcome. */
function told(outcome: Outcome): unknown {
  return outcome.kind === 'responded' ? outcome.response : outcome;
}

/** Outcomes that say to send the same request again. */
export function isTransient(outcome: Outcome): boolean {
  if (outcome.kind !== 'responded') return false;
  // Its client could not be asked, and says later that it can.
  if ('error' in outcome.response && outcome.response.error.code === -32021) return true;
  // A process that has it gets the request next.
  if (isLack(outcome.response)) return true;
  if (outcome.failure === undefined) return false;
  return ['store', 'busy', 'fenced', 'closed'].includes(outcome.failure);
}

function isRefusal(outcome: Outcome): boolean {
  return outcome.kind === 'responded' && outcome.failure === 'bad-token';
}
