/** What every revision is handed: the engine, the tokens, the store and the user's server. */
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv';
import { systemClock } from '../src/call/clock.ts';
import { Engine } from '../src/call/engine.ts';
import type { HandoffParts } from '../src/call/handoff.ts';
import type { CallRecord } from '../src/call/journal.ts';
import type { JsonObject } from '../src/call/json.ts';
import type { Leg, Relay } from '../src/call/ports.ts';
import { type IndexRecords, TaskIndex } from '../src/call/task-index.ts';
import { type Sweeper, sweepTasks } from '../src/call/task-sweeper.ts';
import { KeyvCallStore } from '../src/checkpoint/call-store.ts';
import { encryptedRecords, plainRecords } from '../src/checkpoint/encrypted.ts';
import { KeyRing } from '../src/checkpoint/key-ring.ts';
import { Sealer, stateTokens } from '../src/checkpoint/sealed.ts';
import { startSweeping } from '../src/checkpoint/sweep.ts';
import type { HostFactory } from '../src/host/host.ts';
import { HostInstance, type Outside } from '../src/host/instance.ts';
import { CachingValidator, schemaCheck } from '../src/host/validator.ts';
import { RateLimits } from '../src/http/rate-limit.ts';
import { type Counters, newCounters } from '../src/observe/counters.ts';
import { watchLoad } from '../src/observe/load.ts';
import { watchUnjournaled } from '../src/observe/unjournaled.ts';
import type { Settings } from '../src/options.ts';
import { EventStreams } from '../src/stream/event-streams.ts';
import { ToolMarks } from './tasks/marks.ts';

export interface Services {
  readonly settings: Settings;
  readonly factory: HostFactory;
  readonly engine: Engine;
  readonly sealer: Sealer;
  readonly store: KeyvCallStore | undefined;
  readonly now: () => number;
  readonly streams: EventStreams;
  /** Answers to what sessions ask outside of calls, that came in at other processes. */
  /** Events that are being written: a handler that closes waits for them. */
  readonly writing: Set<Promise<unknown>>;
  readonly counters: Counters;
  readonly rates: RateLimits | undefined;
  readonly marks: ToolMarks;
  /** Which tasks there are; undefined without a store. */
  readonly taskIndex: TaskIndex | undefined;
  /** Called with what a server says that belongs to no call, on revisions without sessions. */
  readonly outside: Set<(notification: JsonObject) => void>;
  /** The server's name and version, once an instance said it. */
  serverInfo?: unknown;
  close(): Promise<void>;
}

export function createServices(factory: HostFactory, settings: Settings): Services {
  const { limits, logger } = settings;
  const now = Date.now;
  const sealer = new Sealer({
    ring: new KeyRing(settings.secrets),
    audience: settings.audience,
    maxLength: limits.tokenBytes,
    now,
  });
  const store =
    settings.store === undefined
      ? undefined
      : new KeyvCallStore(
          settings.store,
          systemClock,
          limits.lease,
          settings.encrypt ? encryptedRecords(sealer) : plainRecords,
        );
  if (store?.primitive === 'none') {
    logger.warn(
      'this store has no insert-if-absent that mcp-await knows: across processes a turn may be run twice (at least once). Use Redis, PostgreSQL or SQLite to have it run once',
    );
  }
  const counters = newCounters();
  const { rateLimit, principal } = settings;
  const rates =
    rateLimit === false
      ? undefined
      : new RateLimits(rateLimit, principal, counters, (message, detail) => logger.warn(message, detail));
  const streams = new EventStreams({
    ...(store !== undefined && { records: store }),
    ...(settings.relay !== undefined && { relay: settings.relay }),
    clock: systemClock,
    limits,
    warn: (message, detail) => logger.warn(message, detail),
  });
  const marks = new ToolMarks();
  const taskIndex = store && new TaskIndex(ownRecords(store, sealer), settings.ttl, now);
  const outside = new Set<(notification: JsonObject) => void>();
  outside.add(({ method }) => {
    if (method === 'notifications/tools/list_changed') marks.forget();
  });
  // Without an async context of its own, nothing is known to be a call's.
  const isWatched = settings.warnUnjournaled && settings.steps;
  const watch = isWatched ? watchUnjournaled((message, detail) => logger.warn(message, detail)) : undefined;
  const load = settings.shedAbove === undefined ? undefined : watchLoad(settings.shedAbove);
  let sweeper: Sweeper | undefined;
  const engine = new Engine({
    ...(store !== undefined && { store }),
    tokens: stateTokens(sealer),
    carry: settings.state === 'sealed',
    check: schemaCheck(new CachingValidator(new AjvJsonSchemaValidator())),
    frame: {
      drift: settings.drift,
      unknownStep: settings.unknownStep,
      // With nowhere to record a step that ends after the asks went out, they wait for it.
      askDelay: store === undefined ? Number.POSITIVE_INFINITY : settings.askDelay,
      replayGrace: settings.replayGrace,
      maxAsks: limits.asks,
      maxHeldNotifications: limits.heldNotifications,
      maxDrawnBytes: limits.journalBytes,
      clock: systemClock,
      warn: (message, detail) => logger.warn(message, detail),
      ...(load !== undefined && { overloaded: () => load.overloaded() }),
      doneTwice: (path) => {
        counters.stepsAtLeastOnce += 1;
        logger.warn(
          'a step was done here after another process took its turn up: it is done there again, under the same idempotencyKey',
          { step: path },
        );
      },
      ...(watch !== undefined && { asked: watch.asked }),
    },
    limits,
    ttl: settings.ttl,
    replay: settings.replay,
    onDrop: settings.onDrop,
    clock: systemClock,
    count: (what) => {
      counters[what] += 1;
    },
    log: (level, message, detail) => logger[level](message, detail),
    ...(settings.relay !== undefined && { handoff: handoffOver(settings.relay, sealer, now) }),
    ...(taskIndex !== undefined && { began: (call) => taskIndex.add(call.id, call.task?.owner) }),
    watch: (id) => sweeper?.watch(id),
    openInstance: async (call, leg) => {
      const instance = await openForCall(factory, settings, call, leg, outside);
      services.serverInfo ??= instance.initialized.serverInfo;
      return instance;
    },
  });
  const sweeping = store === undefined ? undefined : startSweeping(store, logger);
  const { tasks } = engine;
  // A task that nobody asks about goes on all the same.
  if (tasks !== undefined && taskIndex !== undefined && store?.isShared === true) {
    sweeper = sweepTasks({
      clock: systemClock,
      lease: limits.lease,
      added: newTasks(taskIndex),
      heard: (id) => store.heard(id),
      progress: (id) => tasks.progress(id),
      runsHere: (id) => tasks.runs(id),
      hasRoom: ({ principal }) => tasks.hasRoom(principal),
      takeUp: (call, at) => engine.takeUpTask(call, at),
      failed: (error) => logger.warn('tasks could not be looked at; trying again', { error: String(error) }),
    });
  }
  const services: Services = {
    settings,
    factory,
    engine,
    sealer,
    store,
    now,
    streams,
    writing: new Set(),
    counters,
    rates,
    marks,
    taskIndex,
    outside,
    async close() {
      sweeping?.stop();
      sweeper?.stop();
      watch?.stop();
      load?.stop();
      await engine.close();
      // What the last turns came to is on its way to their streams.
      await new Promise((resolve) => setImmediate(resolve));
      await Promise.allSettled(services.writing);
      await streams.close();
    },
  };
  return services;
}

/**
 * Services may share a store: which tasks there are is sealed, so that none looks after another's, whose tools it
 * does not have.
 */
function ownRecords(store: KeyvCallStore, sealer: Sealer): IndexRecords {
  return {
    insert: (name, id, expires) => store.insert(name, sealer.seal('task', { id }, expires), expires),
    get: async (name) => {
      const found = await store.get(name);
      if (found === undefined || found === null) return undefined;
      const { id } = await sealer.open('task', found).catch((): JsonObject => ({}));
      return id ?? null;
    },
  };
}

function newTasks(index: TaskIndex): () => Promise<string[]> {
  const seen = new Map<number, number>();
  return () => index.added(seen);
}

/** How long a message of the relay is good for, in milliseconds; clocks may differ by as much. */
const MESSAGE_LIFE = 300_000;

/** What goes over a relay is sealed: it holds answers and credentials, and nobody else may speak in it. */
function handoffOver(relay: Relay, sealer: Sealer, now: () => number): HandoffParts {
  return {
    relay,
    seal: (message) => sealer.seal('relay', message, now() + MESSAGE_LIFE),
    open: (text) => sealer.open('relay', text, Number.POSITIVE_INFINITY),
  };
}

/** An instance of its own for a call on a revision without sessions (invariant 4). */
function openForCall(
  factory: HostFactory,
  settings: Settings,
  call: CallRecord,
  leg: Leg,
  outside: ReadonlySet<(notification: JsonObject) => void>,
): Promise<HostInstance> {
  return HostInstance.open({
    factory,
    client: call.client,
    context: {
      era: call.revision === '2026-07-28' ? 'modern' : 'legacy',
      revision: call.revision,
      ...(leg.authInfo !== undefined && { authInfo: leg.authInfo }),
      ...(leg.request !== undefined && { requestInfo: leg.request }),
      ...(leg.workspace !== undefined && { workspace: leg.workspace }),
      clientCapabilities: call.client.capabilities,
      clientInfo: call.client.info,
    },
    sessionId: call.id,
    single: true,
    contexts: settings.steps,
    outside: noSession(settings, outside),
  });
}

/** Where there is no session nobody can be asked outside of a call: such an ask stays pending. */
export function noSession(
  settings: Settings,
  outside: ReadonlySet<(notification: JsonObject) => void>,
): Outside {
  return {
    notification: (message) => {
      for (const listener of outside) listener(message);
    },
    request: () => new Promise(() => {}),
    error: (error) => settings.logger.warn('a server instance reported an error', { error: String(error) }),
  };
}
