/**
 * Live calls (2025): asks and the result go out on a stream, answers come in at any process, and a client whose
 * connection broke comes back anywhere with the id of its last event. What the edges of `compat/session` do for a
 * session is done here for one call: its stream, its answers, and taking both up.
 */
import fc from 'fast-check';
import { canonical, isObject, type JsonObject } from '../../src/base/json.ts';
import type { NewCall, Started, TakingUp } from '../../src/call/engine.ts';
import type { OpenAsk } from '../../src/call/journal/entries.ts';
import { DEFAULT_LIMITS } from '../../src/call/limits.ts';
import type { Leg, Outcome } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken, isKept } from '../../src/call/run/wire-error.ts';
import type { Appender } from '../../src/stream/appender.ts';
import { EventStreams } from '../../src/stream/event-streams.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { BINDING, CAPABILITIES, Cluster, LEASE, type Process } from './cluster.ts';
import { answerTo, expected, has, isDeterministic, racesTimers } from './plan.ts';
import { SimulatedRelay } from './relay.ts';
import { CALM, END, play, type Report, type Scenario, scenarios, strike } from './scenario.ts';
import { SimulatedStore } from './store.ts';
import type { Life } from './world.ts';
import { World } from './world.ts';

const SCOPE = 'session';
/** How long a reply is held back, in milliseconds. */
const MOMENT = 50;
/** Of a stream, in milliseconds: longer than clocks jump. */
const LIFE = 3_600_000_000;

/** A scenario of a call that suspends, or of a live one. */
export interface AnyScenario extends Scenario {
  readonly live?: true;
}

/** Live calls have no asks for URLs that a tool throws. */
const liveScenarios: fc.Arbitrary<AnyScenario> = scenarios
  .filter(({ plan }) => !has(plan, 'url'))
  .map((scenario) => ({ ...scenario, live: true }));

export const anyScenarios: fc.Arbitrary<AnyScenario> = fc.oneof(
  { weight: 2, arbitrary: scenarios },
  { weight: 1, arbitrary: liveScenarios },
);

export function playAny(scenario: AnyScenario): Promise<Report> {
  return scenario.live ? playLive(scenario) : play(scenario);
}

type Appends = Pick<Appender, 'append'>;
type Said = Parameters<Appender['append']>;
type Message = JsonObject & { readonly id?: string };

/** What one life of a process has of sessions. */
class Door {
  readonly #process: Process;
  readonly #world: World;
  readonly #acknowledged: ReadonlyMap<string, number>;
  readonly #streams: EventStreams;
  readonly #records: ReturnType<SimulatedStore['records']>;
  readonly #running = new Map<string, Started>();

  constructor({ life, engine, clock }: Process, { world, store, relay, acknowledged }: Shared) {
    this.#process = { life, engine, clock } as Process;
    this.#world = world;
    this.#acknowledged = acknowledged;
    this.#records = store.records(life, clock, LEASE);
    this.#streams = new EventStreams({
      records: this.#records,
      ...(relay !== undefined && { relay: relay.for(life) }),
      clock,
      limits: { ...DEFAULT_LIMITS, streamLife: LIFE },
      warn: () => {},
    });
  }

  /** A POST that begins the call. Its reply is held back until the call has something to lose. */
  begin(sink: Sink): void {
    const { engine, life } = this.#process;
    const client = { capabilities: CAPABILITIES, info: {}, protocolVersion: '2025-11-25' };
    const said: Said[] = [];
    let state: 'held' | 'stream' | 'response' = 'held';
    let stream: Appender | undefined;
    let opening: Promise<void> | undefined;
    const open = async (): Promise<void> => {
      const opened = this.#streams.open(SCOPE);
      const listed = this.#records.insert(`${opened.id}:call`, started.callId, Number.POSITIVE_INFINITY);
      await Promise.all([listed, started.keep()]);
      if (state !== 'held') return;
      state = 'stream';
      void (await this.#streams.find(opened.id, 0, SCOPE)).follow(sink);
      opened.owns = () => this.#process.engine.holds(started.callId);
      const primed = opened.append({ data: '' });
      stream = opened;
      for (const one of said) void opened.append(...one).catch(() => {});
      await primed;
    };
    const begin = (): Promise<void> => {
      if (state === 'response') return Promise.resolve();
      opening ??= open().catch((error: unknown) => {
        if (state === 'held') opening = undefined;
        throw error;
      });
      return opening;
    };
    const append = async (...event: Said): Promise<string> => {
      if (stream !== undefined) return stream.append(...event);
      said.push(event);
      if (event[1] !== true) await begin();
      return '';
    };
    const call: NewCall = {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client,
      binding: BINDING,
      resumable: true,
      onDurable: begin,
    };
    const started = engine.start(
      call,
      this.#leg(
        () => started.callId,
        () => ({ append }),
      ),
    );
    this.#keep(started);
    void started.outcome.then(async (outcome) => {
      await this.#tell({ append }, outcome);
      if (state !== 'held') return;
      state = 'response';
      for (const [event] of said) sink.send(event, '');
      sink.end(said.length > 0 ? 'finished' : 'closed');
    });
    const moment = (): void => {
      if (state === 'held') begin().catch(() => this.#world.after(MOMENT, moment, life));
    };
    this.#world.after(MOMENT, moment, life);
  }

  /** A GET with the id of the last event. */
  async comeBack(last: string, sink: Sink, gone: () => boolean): Promise<void> {
    const found = await this.#streams.resume(last, SCOPE);
    void found.follow(sink);
    const stream = last.slice(0, last.lastIndexOf('_'));
    const callId = await this.#records.get(`${stream}:call`);
    if (typeof callId === 'string') await this.#follow(stream, callId, gone);
  }

  /** An answer. @returns whether it was taken in */
  async answer(id: string, response: { result: JsonObject }): Promise<boolean> {
    const slash = id.indexOf('/');
    const [callId, key] = [id.slice(0, slash), id.slice(slash + 1)];
    const here = this.#running.get(callId);
    if (here !== undefined) return here.answer(key, response);
    await this.#process.engine.deliver(callId, undefined, key, response);
    return true;
  }

  /** Takes the call over once its owner is silent, and sends its outcome if the owner did not. */
  async #follow(stream: string, callId: string, gone: () => boolean): Promise<void> {
    while (!gone() && !this.#running.has(callId)) {
      let appender: Appender | undefined;
      let takenAt = 0;
      const leg = this.#leg(
        () => callId,
        () => appender,
        () => takenAt,
      );
      const started: TakingUp = this.#process.engine.takeUp(callId, BINDING, leg, async () => {
        takenAt = this.#world.time;
        appender = await this.#streams.takeOver(stream, SCOPE);
        appender.owns = () => this.#process.engine.holds(callId);
        this.#keep(started);
        return undefined;
      });
      const watch = (): void => {
        if (appender !== undefined) return;
        if (gone()) started.stop();
        else this.#world.after(100, watch, this.#process.life);
      };
      watch();
      const outcome = await started.outcome;
      if (appender !== undefined) {
        await this.#tell(appender, outcome);
        return;
      }
      if (outcome.kind !== 'gone' && 'elsewhere' in outcome && outcome.elsewhere) {
        await this.#wait(LEASE);
        if (!gone()) await this.#tell(await this.#streams.takeOver(stream, SCOPE), outcome);
        return;
      }
      // The store has neither the beginning of the call nor its outcome.
      if (isBadToken(outcome)) {
        await (await this.#streams.takeOver(stream, SCOPE)).finish();
        return;
      }
      await this.#wait(LEASE / 2);
    }
  }

  #leg(callId: () => string, stream: () => Appends | undefined, since = () => 0): Leg {
    const say = (message: Message): void => {
      void stream()
        ?.append({ event: 'message', data: JSON.stringify(message) })
        .catch(() => {});
    };
    const idOf = (ask: OpenAsk): string => `${callId()}/${ask.key}`;
    return {
      live: true,
      capabilities: CAPABILITIES,
      notify: () => {},
      ask: (ask) => {
        const id = idOf(ask);
        // An answer that arrives during the takeover may cross with its ask.
        if ((this.#acknowledged.get(id) ?? Number.POSITIVE_INFINITY) < since()) {
          this.#world.violated(`${this.#process.life.name} asks ${ask.key}, whose answer was taken in`);
        }
        say({ id, ask: String(ask.params.message) });
      },
      withdraw: (ask) => say({ withdrawn: idOf(ask) }),
    };
  }

  #keep(started: Started): void {
    this.#running.set(started.callId, started);
    void started.outcome.finally(() => this.#running.delete(started.callId));
  }

  async #tell(stream: Appends, outcome: Outcome): Promise<void> {
    if (outcome.kind !== 'responded' || goesOnElsewhere(outcome)) return;
    const data = JSON.stringify({ response: outcome.response, failure: outcome.failure ?? null });
    await stream.append({ event: 'message', data }, true, isKept(outcome)).catch(() => {});
  }

  #wait(time: number): Promise<void> {
    return new Promise((resolve) => this.#world.after(time, resolve, this.#process.life));
  }
}

interface Shared {
  readonly world: World;
  readonly store: SimulatedStore;
  readonly relay: SimulatedRelay | undefined;
  /** When an answer was acknowledged, by the ask's id. */
  readonly acknowledged: Map<string, number>;
}

/** One connection of the client, until it breaks. */
interface Connection {
  readonly isOver: () => boolean;
  /** Resolves when it is over. */
  readonly over: Promise<void>;
}

class LiveClient {
  readonly #shared: Shared;
  readonly #cluster: Cluster;
  readonly #scenario: Scenario;
  readonly #doors = new WeakMap<Life, Door>();
  readonly #had = new Set<string>();
  readonly #answering = new Set<string>();
  #last: string | undefined;
  #response: { readonly response: JsonObject; readonly failure: unknown } | undefined;

  constructor(shared: Shared, cluster: Cluster, scenario: Scenario) {
    this.#shared = shared;
    this.#cluster = cluster;
    this.#scenario = scenario;
  }

  async call(): Promise<void> {
    const { world } = this.#shared;
    while (this.#response === undefined) {
      await this.#connect().over;
      await new Promise<void>((resolve) => world.after(world.between(5, 200), resolve));
    }
    this.#judge(this.#response);
  }

  /** A POST, or a GET once there is an id to come back with, at some process. */
  #connect(): Connection {
    const { world } = this.#shared;
    const process = this.#somewhere();
    let isOver = false;
    let onOver = (): void => {};
    const over = new Promise<void>((resolve) => {
      onOver = resolve;
    });
    const closed: (() => void)[] = [];
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      onOver();
      // Its process learns of it later.
      world.after(world.between(0.1, 3), () => tellAll(closed), process.life);
    };
    const { life } = process;
    // A connection keeps the order.
    let latest = 0;
    const later = (run: () => void): void => {
      latest = Math.max(latest, world.time + world.between(0.1, 3));
      world.at(latest, run);
    };
    const sink: Sink = {
      send: (event, id) => {
        later(() => {
          if (!isOver) this.#take(event.data ?? '', id);
        });
        return true;
      },
      onReady: () => {},
      onClose: (fn) => void closed.push(fn),
      end: (why) =>
        later(() => {
          if (!isOver && why === 'finished') this.#finished();
          end();
        }),
    };
    const serve = async (): Promise<void> => {
      const door = this.#doorOf(process);
      if (this.#last === undefined) door.begin(sink);
      else await door.comeBack(this.#last, sink, () => isOver);
    };
    world.after(world.between(0.1, 3), () => void serve().catch(() => world.after(1, end)), life);
    const watch = (): void => {
      if (isOver) return;
      if (life.dead) end();
      else world.after(50, watch);
    };
    watch();
    const { patience } = this.#scenario.client;
    world.after(world.time > CALM ? 60_000 : patience * world.between(0.5, 4), end);
    return { isOver: () => isOver, over };
  }

  /** A stream that ends without a response: the store took nothing of its call, so it begins anew. */
  #finished(): void {
    const { world } = this.#shared;
    if (this.#response !== undefined) return;
    if (this.#scenario.outages.length === 0) world.violated('a stream ends without a response');
    this.#last = undefined;
  }

  #take(data: string, id: string): void {
    const { world } = this.#shared;
    if (this.#had.has(id)) world.violated(`event ${id} comes twice`);
    // Events of a response that was held back have none: nobody comes back for them.
    if (id !== '') {
      this.#had.add(id);
      this.#last = id;
    }
    if (data === '') return;
    const message = JSON.parse(data) as Message & { ask?: string; response?: JsonObject; failure?: unknown };
    if (message.response !== undefined) {
      if (this.#response !== undefined) world.violated('a call has two responses');
      this.#response = { response: message.response, failure: message.failure };
    } else if (message.id !== undefined && message.ask !== undefined) {
      const ask = { id: message.id, text: message.ask };
      void this.#answer(ask);
      if (world.chance(this.#scenario.client.twice)) void this.#answer(ask);
    }
  }

  /** Until it was taken in, at whichever process; its user answers once. */
  async #answer({ id, text }: { id: string; text: string }): Promise<void> {
    const { world, acknowledged } = this.#shared;
    this.#answering.add(id);
    const result = answerTo(text);
    for (let tries = 0; tries < 1_000 && this.#response === undefined && !acknowledged.has(id); tries += 1) {
      if (await this.#deliver(id, result)) {
        acknowledged.set(id, world.time);
        return;
      }
      await new Promise<void>((resolve) => world.after(world.between(5, 300), resolve));
    }
  }

  /** @returns whether its reply came, and said so */
  #deliver(id: string, result: JsonObject): Promise<boolean> {
    const { world } = this.#shared;
    const process = this.#somewhere();
    const { life } = process;
    return new Promise((resolve) => {
      let isDone = false;
      const done = (isTaken: boolean): void => {
        isDone = true;
        resolve(isTaken);
      };
      world.after(
        world.between(0.1, 3),
        () => {
          const told = (isTaken: boolean): void => {
            world.after(world.between(0.1, 3), () => done(isTaken && !(life.dead && world.chance(0.5))));
          };
          this.#doorOf(process)
            .answer(id, { result })
            .then(told, () => told(false));
        },
        life,
      );
      const watch = (): void => {
        if (isDone) return;
        if (life.dead) done(false);
        else world.after(50, watch);
      };
      watch();
    });
  }

  #doorOf(process: Process): Door {
    const door = this.#doors.get(process.life) ?? new Door(process, this.#shared);
    this.#doors.set(process.life, door);
    return door;
  }

  #somewhere(): Process {
    const { processes } = this.#cluster;
    return processes[Math.floor(this.#shared.world.random() * processes.length)] as Process;
  }

  #judge({ response, failure }: { response: JsonObject; failure: unknown }): void {
    const { world } = this.#shared;
    const { plan } = this.#scenario;
    if ('error' in response) {
      // A timer that no journal records may win on one process and lose on the other.
      const { outages } = this.#scenario;
      // Away for longer than a request waits, before this call was in the store; an earlier one of the client may be.
      const isRefused = failure === 'store' && outages.some(({ from, to }) => to - from > 3 * LEASE);
      if (!racesTimers(plan) && !isRefused) {
        world.violated(`it ended with ${JSON.stringify(response.error)}`);
      }
    } else if (isDeterministic(plan)) {
      const wanted = canonical(expected(plan));
      const got = canonical(isObject(response.result) ? response.result.value : undefined);
      if (got !== wanted) world.violated(`its result is ${got}, not ${wanted}`);
    }
  }
}

async function playLive(scenario: Scenario): Promise<Report> {
  const world = new World(scenario.seed);
  const store = new SimulatedStore(world, scenario.outages, scenario.pace);
  const relay = new SimulatedRelay(world, scenario.weather ?? { loss: 0, twice: 0, delay: 1 });
  const { plan, frames, weather } = scenario;
  const relayed = weather !== undefined;
  const cluster = new Cluster(world, store, relay, { plan, carry: false, frames, relayed, live: true });
  for (const skew of scenario.skews) cluster.add(skew);
  for (const fault of scenario.faults) {
    if (fault.kind === 'then') cluster.strikeThen(fault);
    else world.at(fault.at, () => strike(cluster, fault));
  }
  const shared = {
    world,
    store,
    relay: relayed ? relay : undefined,
    acknowledged: new Map<string, number>(),
  };
  const client = new LiveClient(shared, cluster, scenario);
  let over = false;
  void client.call().then(
    () => {
      over = true;
    },
    (error: unknown) => world.violated(`the client failed: ${String(error)}`),
  );
  await world.run(() => over, END);
  if (!over) world.violated('the call neither ended nor waits for its user');
  const repeated = [...cluster.effects.values()].filter((attempts) => attempts.length > 1).length;
  return { violations: world.violations, repeated, time: world.time };
}

function tellAll(closed: readonly (() => void)[]): void {
  for (const tell of closed) tell();
}
