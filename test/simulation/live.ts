/**
 * Live calls (2025): asks and the result go out on a stream, answers come in at any process, and a client whose
 * connection broke comes back anywhere with the id of its last event. What the edges of `compat/session` do for a
 * session is done here for one call: its stream, its answers, and taking both up.
 */
import fc from 'fast-check';
import type { JsonObject } from '../../src/base/values.ts';
import type { NewCall, Started, TakingUp } from '../../src/call/engine.ts';
import type { Entry } from '../../src/call/journal/entries.ts';
import type { CallStore, Outcome, RequestContext } from '../../src/call/ports.ts';
import { goesOnElsewhere, isBadToken } from '../../src/call/run/wire-error.ts';
import { type CallConnection, CallConnections } from '../../src/stream/call-connections.ts';
import { callIdOf, parseEventId } from '../../src/stream/event-id.ts';
import type { Projected, Sink } from '../../src/stream/tail.ts';
import { BINDING, CAPABILITIES, Cluster, LEASE, type Process } from './cluster.ts';
import { type PageScenario, playPage } from './page.ts';
import { answerTo, has } from './plan.ts';
import { SimulatedRelay } from './relay.ts';
import {
  CALM,
  checkAsked,
  END,
  judgeResponse,
  play,
  populate,
  type Report,
  repeatedIn,
  type Scenario,
  scenarios,
} from './scenario.ts';
import { SimulatedStore } from './store.ts';
import { playTask, type TaskScenario } from './tasks.ts';
import type { Life } from './world.ts';
import { World } from './world.ts';

/** How long a reply is held back, in milliseconds. */
const MOMENT = 50;

/** A scenario of a call that suspends, of a live one, of a task, or of a call whose person answers on the page. */
export interface AnyScenario extends Scenario {
  readonly live?: true;
  readonly page?: PageScenario['page'];
  readonly task?: TaskScenario['task'];
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
  const { page, task } = scenario;
  if (page !== undefined) return playPage({ ...scenario, page });
  if (task !== undefined) return playTask({ ...scenario, task });
  return scenario.live ? playLive(scenario) : play(scenario);
}

type Message = JsonObject & { readonly id?: string };

/** What one life of a process has of sessions. */
class Door {
  readonly #process: Process;
  readonly #world: World;
  readonly #logs: CallStore;
  readonly #connections: CallConnections;
  readonly #running = new Map<string, Started>();

  constructor({ life, engine, clock }: Process, { world, store }: Shared) {
    this.#process = { life, engine, clock } as Process;
    this.#world = world;
    this.#logs = store.for(life, clock, LEASE);
    this.#connections = new CallConnections({
      clock,
      read: (callId, position) => this.#logs.read(callId, position),
      wake: (callId, by) => void engine.wake(callId, by),
    });
    store.hooks.set(life, {
      written: (call, position, entry) => this.#connections.written(call, position, entry),
      received: (callId, position, entry) => this.#connections.received(callId, position, entry),
    });
  }

  /** A POST that begins the call. Its reply is held back until the call has something to lose. */
  begin(sink: Sink): void {
    const { engine, life } = this.#process;
    const client = { capabilities: CAPABILITIES, info: {}, protocolVersion: '2025-11-25' };
    let state: 'held' | 'stream' | 'response' = 'held';
    let opening: Promise<void> | undefined;
    const open = async (): Promise<void> => {
      const connection = this.#open(started.callId);
      await started.keep().catch((error: unknown) => {
        connection.end('closed');
        throw error;
      });
      if (state !== 'held') {
        connection.end('closed');
        return;
      }
      state = 'stream';
      connection.attach(sink);
    };
    const begin = (): Promise<void> => {
      if (state === 'response') return Promise.resolve();
      opening ??= open().catch((error: unknown) => {
        if (state === 'held') opening = undefined;
        throw error;
      });
      return opening;
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
    const started = engine.start(call, LEG);
    this.#keep(started);
    void started.outcome.then((outcome) => {
      if (state !== 'held') return this.#finish(started.callId, outcome);
      state = 'response';
      const data = responseIn(outcome);
      if (data !== undefined) sink.send({ data });
      sink.end(data === undefined ? 'closed' : 'finished');
    });
    const moment = (): void => {
      if (state === 'held') begin().catch(() => this.#world.after(MOMENT, moment, life));
    };
    this.#world.after(MOMENT, moment, life);
  }

  /** A GET with the id of the last event. */
  async comeBack(last: string, sink: Sink): Promise<void> {
    const place = parseEventId(last, 256);
    if (place === undefined) throw new Error(`${last} is no event id`);
    const callId = callIdOf(place.stream);
    const entry = await this.#logs.read(callId, place.sequence - 1);
    if (entry === undefined) throw new Error(`there is no event ${last}`);
    const connection = this.#open(callId, place);
    connection.attach(sink);
    await this.#follow(callId, connection);
  }

  /** An answer. @returns whether it was taken in */
  async answer(id: string, response: { result: JsonObject }): Promise<boolean> {
    const slash = id.indexOf('/');
    const [callId, key] = [id.slice(0, slash), id.slice(slash + 1)];
    if (await this.#running.get(callId)?.answer(key, response)) return true;
    await this.#process.engine.deliver(callId, ANYONE, key, response);
    return true;
  }

  #open(callId: string, after?: { sequence: number; nth?: number }): CallConnection {
    return this.#connections.open({
      callId,
      expires: Infinity,
      project: (entry) => projection(callId, entry),
      expired: () => ({ data: 'expired' }),
      connection: `${this.#process.life.name} ${this.#world.random()}`,
      ...(after !== undefined && { after }),
    });
  }

  /** Reads the log, and takes the call over once its owner is silent. */
  async #follow(callId: string, connection: CallConnection): Promise<void> {
    const { engine } = this.#process;
    const { gone } = connection;
    const reading = connection.entry(engine.name);
    for (let isNamed = false; !gone.aborted; isNamed = true) {
      if (this.#running.has(callId) && (isNamed || (await engine.read(callId, reading)))) {
        connection.catchUp();
        return;
      }
      let isTaken = false;
      const started: TakingUp = engine.takeUp(
        callId,
        BINDING,
        LEG,
        async () => {
          isTaken = true;
          this.#keep(started);
          return undefined;
        },
        { seen: (at, entry) => connection.offer(at, entry), ...(!isNamed && { reading }) },
      );
      gone.addEventListener('abort', started.stop, { once: true });
      const outcome = await started.outcome;
      if (isTaken) {
        this.#finish(callId, outcome);
        return;
      }
      if (isBadToken(outcome)) connection.end('expired');
      if (connection.hasEnd) return;
      await this.#wait(LEASE / 2);
    }
  }

  #finish(callId: string, outcome: Outcome): void {
    const connection = this.#connections.get(callId);
    if (connection === undefined || connection.hasEnd) return;
    if (goesOnElsewhere(outcome)) {
      void this.#follow(callId, connection).catch(() => connection.end('failed'));
      return;
    }
    const data = responseIn(outcome);
    if (data !== undefined) connection.pass({ data });
    connection.end('finished');
  }

  #keep(started: Started): void {
    this.#running.set(started.callId, started);
    void started.outcome.finally(() => this.#running.delete(started.callId));
  }

  #wait(time: number): Promise<void> {
    return new Promise((resolve) => this.#world.after(time, resolve, this.#process.life));
  }
}

const ANYONE = { principal: undefined };
const LEG: RequestContext = { live: true, isLogged: true, capabilities: CAPABILITIES, notify: () => {} };

function responseIn(outcome: Outcome): string | undefined {
  if (outcome.kind !== 'responded') return undefined;
  return JSON.stringify({ response: outcome.response, failure: outcome.failure ?? null });
}

/** The events of an entry; the first entry's gives the client an id to come back with. */
function projection(callId: string, entry: Entry): Projected {
  const events = (...messages: (JsonObject | undefined)[]): Projected => ({
    kind: 'events',
    events: messages.map((message) => ({ data: message === undefined ? '' : JSON.stringify(message) })),
    last: entry.type === 'ended' || entry.type === 'cancelled',
  });
  switch (entry.type) {
    case 'called':
      return events(undefined);
    case 'asked':
      return events({ id: `${callId}/${entry.ask.key}`, ask: String(entry.ask.params.message) });
    case 'withdrawn':
      return events({ withdrawn: `${callId}/${entry.key}` });
    case 'ended':
      return events({ response: entry.response, failure: null });
    default:
      return events();
  }
}

interface Shared {
  readonly world: World;
  readonly store: SimulatedStore;
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
          if (!isOver) this.#take(event.data ?? '', id ?? '');
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
      else await door.comeBack(this.#last, sink);
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
    const { outages, faults } = this.#scenario;
    // Away for longer than a request waits, before this call was in the store; a process that sleeps waits meanwhile.
    const slept = faults.reduce((sum, fault) => sum + ('for' in fault ? fault.for : 0), 0);
    const isRefused = failure === 'store' && outages.some(({ from, to }) => to - from + slept > 3 * LEASE);
    if (!isRefused) judgeResponse(this.#shared.world, this.#scenario.plan, response);
  }
}

async function playLive(scenario: Scenario): Promise<Report> {
  const world = new World(scenario.seed);
  const store = new SimulatedStore(world, scenario.outages, scenario.pace);
  const relay = new SimulatedRelay(world, scenario.weather ?? { loss: 0, twice: 0, delay: 1 });
  const { plan, frames, weather } = scenario;
  const relayed = weather !== undefined;
  const cluster = new Cluster(world, store, relay, { plan, carry: false, frames, relayed, live: true });
  populate(world, cluster, scenario);
  const shared = {
    world,
    store,
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
  checkAsked(world, store);
  return { violations: world.violations, repeated: repeatedIn(cluster), time: world.time };
}

function tellAll(closed: readonly (() => void)[]): void {
  for (const tell of closed) tell();
}
