/** The services that every revision uses: the engine, the tokens, the store and the user's server. */

import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv';
import type { RevisionFacts } from '../../compat/revision-facts.ts';
import { ToolMarks } from '../../compat/tasks/marks.ts';
import { believing, PageAsks } from '../ask/page-asks.ts';
import { AskPage } from '../ask/serve.ts';
import {
  type Clock,
  defined,
  every,
  type JsonObject,
  nextTurn,
  objectOf,
  systemClock,
  textOf,
  within,
} from '../base/values.ts';
import { Engine } from '../call/engine.ts';
import type { CallRecord, Entry } from '../call/journal/entries.ts';
import { OUTSIDE } from '../call/run/outside.ts';
import { type IndexRecords, type SeenRows, TaskIndex } from '../call/task/index.ts';
import { type Sweeper, sweepTasks } from '../call/task/sweeper.ts';
import { CallBook } from '../checkpoint/call-book.ts';
import { KeyvCallStore } from '../checkpoint/call-store.ts';
import { KeyRing } from '../checkpoint/key-ring.ts';
import { Names } from '../checkpoint/names.ts';
import { encryptedRecords, plainRecords } from '../checkpoint/records.ts';
import { Sealer, stateTokens } from '../checkpoint/sealed.ts';
import { SecretSource } from '../checkpoint/secret-source.ts';
import type { Inbound } from '../doors/http/exchange.ts';
import { defaultPrincipal, type Principal } from '../doors/http/principal.ts';
import { RateLimits } from '../doors/http/rate-limit.ts';
import { Traffic } from '../doors/http/traffic.ts';
import { answerCheck } from '../host/answer-check.ts';
import type { HostFactory } from '../host/host.ts';
import type { HostInstance } from '../host/instance.ts';
import { isRefusal } from '../host/refusal.ts';
import { type Outside, refuseOutside } from '../host/router.ts';
import { CachingValidator, compilingValidator, evaluatingValidator } from '../host/validator.ts';
import { Retry } from '../log/retry.ts';
import { type AuditEvent, auditEvent, auditedAs } from '../observe/audit.ts';
import { type Counters, newCounters } from '../observe/counters.ts';
import { type HeapWatch, watchHeap, watchLoad } from '../observe/load.ts';
import { withoutIds } from '../observe/redact.ts';
import { watchUnjournaled } from '../observe/unjournaled.ts';
import { isPeerHost } from '../proxy/host.ts';
import { sealedMessages } from '../relay/messages.ts';
import { CallConnections } from '../stream/call-connections.ts';
import { EventStreams } from '../stream/event-streams.ts';
import { Announcements } from './announcements.ts';
import { admit, KnownGuards } from './guards.ts';
import { createInstances, type Instances, type Opening } from './instances.ts';
import type { Settings } from './settings.ts';

/** Characters of an event whose content is kept apart; in a shared store that costs a write more. */
const LARGE = 1_000;
const LARGE_SHARED = 16_384;
/** How long an ask waits for a running step before it goes out beside it, in milliseconds. */
const ASK_DELAY = 5_000;
/** How long a replay waits for the tool to reach a recorded answer or step before it is skipped, in milliseconds. */
const REPLAY_GRACE = 300;
/** How long the events of turns that ended may take before their streams are handed over, in milliseconds. */
const LAST_EVENTS = 1_000;
/** Every process deletes expired records, in stores that do not, at this interval in milliseconds. */
const SWEEP_EVERY = 600_000;

export interface Services {
  readonly settings: Settings;
  /** All revisions, by name. */
  readonly table: ReadonlyMap<string, RevisionFacts>;
  /** The caller's stable name; undefined for an anonymous one. */
  readonly principal: Principal;
  /** Instances of the user's server. */
  readonly instances: Instances;
  readonly engine: Engine;
  readonly sealer: Sealer;
  readonly store: KeyvCallStore | undefined;
  readonly names: Names;
  readonly now: () => number;
  /** Tries a failing store again. */
  readonly retry: Retry;
  readonly streams: EventStreams;
  /** Where the logs of live calls are: the store or, without one, this process's memory. */
  readonly logs: KeyvCallStore;
  /** The connections that read the replies of calls from their logs. */
  readonly replies: CallConnections;
  /** Events that are being written: a handler that closes waits for them. */
  readonly writing: Set<Promise<unknown>>;
  readonly counters: Counters;
  /** Connections, and bytes in transit. */
  readonly traffic: Traffic;
  readonly rates: RateLimits | undefined;
  readonly marks: ToolMarks;
  /** Which requests the server's SDK would check. */
  readonly guards: KnownGuards;
  /** Which tasks there are; undefined without a store. */
  readonly taskIndex: TaskIndex | undefined;
  /** Whether servers run elsewhere, so that they outlive their instances here. */
  readonly isElsewhere: boolean;
  /** What a server says outside of replies, on revisions without sessions. */
  readonly announcements: Announcements;
  readonly heap: HeapWatch;
  readonly asking: PageAsks | undefined;
  /** The page on which a person answers, if there is one. */
  readonly page: AskPage | undefined;
  /** The server's name and version, once an instance reported it. */
  serverInfo?: unknown;
  /** Whether calls of 2026-07-28 become tasks, once an instance reported what the server declares. */
  makesTasks?: boolean;
  /** Whether there are secrets to seal with; they may have to be asked for. */
  ready(): boolean | Promise<boolean>;
  /** Lists a stream under its known caller before its first event: a stream that cannot be found cannot be erased. */
  listStream(caller: string | undefined, id: string, scope: string): Promise<void>;
  /** Calls that wait for their caller, of one who is known or of all. */
  suspended(caller?: string): Promise<number>;
  /** Ends and erases the calls of a known caller. @returns how many there were */
  forget(caller: string): Promise<number>;
  /** Whether its calls were handed over to other processes. */
  readonly hasLeft: boolean;
  /** Why no request should come here; undefined where one may. */
  health(): Promise<string | undefined>;
  /** Serves on, and hands running calls over to other processes once they had `limits.drain`. */
  leave(): Promise<void>;
  close(): Promise<void>;
}

export function createServices(
  factory: HostFactory,
  given: Settings,
  table: ReadonlyMap<string, RevisionFacts>,
  counters = newCounters(),
  traffic = new Traffic(given.limits, counters),
): Services {
  const { limits, audience, secrets } = given;
  // What processes compare with one another is told by the clock that they share, if their store has one.
  const now = (): number => store?.time() ?? systemClock.now();
  const clock: Clock = { ...systemClock, now };
  const ring = new KeyRing(typeof secrets === 'function' ? undefined : secrets);
  const source =
    typeof secrets === 'function'
      ? new SecretSource(secrets, ring, (...said) => given.logger.warn(...said))
      : undefined;
  const unknown = source && (() => source.unknown());
  const hasSecrets = (): boolean | Promise<boolean> => source?.ready() ?? true;
  void hasSecrets();
  const names = new Names(audience, ring);
  const logger = withoutIds(given.logger, (id) => names.label(id));
  const settings: Settings = { ...given, logger };
  const warn = (message: string, detail?: JsonObject): void => logger.warn(message, detail);
  const sealer = new Sealer({
    ring,
    audience,
    maxLength: limits.tokenBytes,
    now,
    ...defined({ unknown }),
  });
  const audit = (what: AuditEvent['what'], call: CallRecord, more: Partial<AuditEvent> = {}): void =>
    settings.audit?.({ ...auditEvent(what, names.label(call.id), call, now()), ...more });
  let callIndex: TaskIndex | undefined;
  const bytes = {
    all: limits.storedBytes,
    caller: limits.callerStoredBytes,
    outcomes: limits.outcomes,
  };
  const retry = new Retry({
    clock,
    lease: limits.lease,
    report: (error) =>
      logger.warn(
        error ? 'the store fails; calls wait until it answers again' : 'the store answers again',
        error && { code: error.code, error: error.message, cause: error.cause },
      ),
  });
  const local = {
    names,
    cipher: plainRecords(audience, ring, unknown),
    bytes,
    written: (call: CallRecord, entry: Entry, at: number, isKept: boolean) => {
      replies.written(call, at, entry, isKept);
      const what = call.method === OUTSIDE ? undefined : auditedAs(entry);
      if (what) audit(what, call);
    },
  };
  const store: KeyvCallStore | undefined =
    settings.store === undefined
      ? undefined
      : new KeyvCallStore(
          settings.store === 'memory' ? undefined : settings.store,
          systemClock,
          limits.lease,
          {
            ...local,
            ...(settings.encrypt && { cipher: encryptedRecords(sealer) }),
            retry,
            list: async (callId: string, caller: string) => callIndex?.addOwn(callId, caller),
          },
        );
  // Until then the time is this process's: a token might be over by that.
  let looking = store?.look().finally(() => {
    looking = undefined;
  });
  const ready = (): boolean | Promise<boolean> => looking?.then(hasSecrets) ?? hasSecrets();
  if (store?.primitive === 'none') {
    logger.warn(
      'this store has no insert-if-absent, so two processes may run the same turn. Use Redis, PostgreSQL or SQLite, or add insertIfAbsent(key, value) to the adapter',
    );
  }
  const principal = settings.principal ?? defaultPrincipal(() => ring.callerKey, warn);
  const { rateLimit } = settings;
  const rates = rateLimit === false ? undefined : new RateLimits(rateLimit, principal, counters, warn);
  const streams = new EventStreams({
    ...defined({ records: store }),
    // What all callers together take of a shared store is its operator's to bound.
    bytes:
      store?.isShared === true
        ? { ...bytes, all: Infinity, large: LARGE_SHARED }
        : { all: bytes.all / 4, caller: bytes.caller / 4, large: LARGE },
    ...defined({ relay: settings.relay }),
    clock,
    limits,
    warn,
  });
  const marks = new ToolMarks();
  const guards = new KnownGuards();
  const records = store && sealedRecords(store, sealer);
  const indexOf = (what: 'tasks' | 'calls' | 'announcements', lifetime: number) =>
    records && new TaskIndex(records, (owner) => names.guessable(what, owner), lifetime, now);
  callIndex = indexOf('calls', settings.ttl);
  const calls =
    store && new CallBook(store, names, clock, callIndex, (id, scope) => streams.remove(id, scope));
  const taskIndex = indexOf('tasks', settings.ttl);
  const announcements = new Announcements({
    log: store?.isShared ? indexOf('announcements', 1) : undefined,
    relay: settings.relay,
    name: () => names.guessable('announcements', null)[0],
    poll: limits.streamPoll,
    clock: systemClock,
    failed: (error) => logger.warn('listeners of other processes may have missed a notification', { error }),
  });
  announcements.onHeard(({ method }) => {
    if (method !== 'notifications/tools/list_changed') return;
    marks.forget();
    guards.forget();
  });
  const handoff = settings.relay && { relay: settings.relay, ...sealedMessages(sealer, now) };
  const peers = isPeerHost(factory) ? factory : undefined;
  const holdsServers = peers !== undefined;
  peers?.attach(logger, (notification) => void announcements.announce(notification, null), handoff);
  // Without an async context of its own, nothing is known to be a call's.
  // The requests to a server that runs elsewhere are this package's own.
  const isWatched = settings.warnUnjournaled && settings.steps && !holdsServers;
  const watch = isWatched ? watchUnjournaled(warn) : undefined;
  const heap = watchHeap(systemClock.elapsed);
  const load = Number.isFinite(limits.shedAbove) ? watchLoad(limits.shedAbove) : undefined;
  let sweeper: Sweeper | undefined;
  const logs = store ?? new KeyvCallStore(undefined, systemClock, limits.lease, local);
  const check = answerCheck(
    new CachingValidator(compilingValidator(() => new AjvJsonSchemaValidator())),
    new CachingValidator(evaluatingValidator),
    { longest: limits.journalBytes, isForeign: holdsServers },
  );
  const mayReplay = settings.replay ?? peers?.mayReplay ?? (() => 'allow' as const);
  const isPaged = settings.ask !== undefined && peers?.outlives() !== false;
  if (settings.ask !== undefined && !isPaged)
    logger.warn(
      'no question of this server is on the page of --ask-page: its calls may outlive its process, and run again with --replay allow alone',
    );
  const asking =
    store &&
    records &&
    new PageAsks({
      settings: isPaged ? settings.ask : undefined,
      lease: limits.lease,
      holdsServers,
      store,
      records,
      names,
      sealer,
      ttl: settings.ttl,
      clock,
      logger,
      mayReplay,
      check,
      engine: () => engine,
      server: () => {
        const { title, name } = objectOf(services.serverInfo);
        return textOf(title ?? name ?? 'an MCP server');
      },
      answered: (call, { by, route, question, arguments: args }) =>
        audit('given', call, { person: by, route, question, arguments: args }),
    });
  const time = settings.ask && now;
  const engine: Engine = new Engine({
    ...defined({ store, route: asking?.route, outlasts: asking?.outlasts, late: asking?.late }),
    local: logs,
    received: (callId, at, entry) => replies.received(callId, at, entry),
    tokens: stateTokens(sealer, time),
    carry: settings.state === 'sealed',
    check,
    isRefusal,
    frame: {
      drift: settings.drift,
      // With nowhere to record a step that ends after the asks went out, they wait for it.
      askDelay: store === undefined ? Infinity : ASK_DELAY,
      replayGrace: REPLAY_GRACE,
      maxAsks: limits.asks,
      maxHeldNotifications: limits.heldNotifications,
      maxDrawnBytes: limits.journalBytes,
      clock,
      warn,
      ...defined({ overloaded: load?.overloaded, asked: watch?.asked }),
      leaving: () => engine.isDue,
      doneTwice: (path) => {
        counters.stepsAtLeastOnce += 1;
        logger.warn(
          'a step was done here after another process took over its turn, and is done there again',
          { step: path },
        );
      },
    },
    limits,
    ttl: settings.ttl,
    replay: mayReplay,
    onDrop: settings.onDrop,
    holdsServers,
    clock,
    time,
    count: (what) => {
      counters[what] += 1;
    },
    log: (level, message, detail) => logger[level](message, detail),
    ...defined({ handoff }),
    ...(taskIndex !== undefined && {
      began: async ({ id, task, ...call }) => {
        // The row of all owners is the sweeper's, which a shared store alone has.
        if (store?.isShared) await taskIndex.add(id, task?.owner);
        else if (task?.owner !== undefined) await taskIndex.addOwn(id, task.owner, call);
      },
    }),
    watch: (id) => sweeper?.watch(id),
    called: (call) => audit('called', call),
    ended: (call, outcome) => {
      if (outcome.kind === 'gone') audit('cancelled', call);
      else if (outcome.kind === 'responded')
        audit('error' in outcome.response ? 'failed' : 'completed', call);
    },
    admit,
    openInstance: async (call, context) => {
      const { id, revision, client, principal: caller } = call;
      const era = table.get(revision)?.era ?? 'legacy';
      const instance = await instances.open({
        id,
        era,
        revision,
        client: call.outlasted?.person === undefined ? client : believing(client),
        principal: caller,
        authInfo: context.authInfo,
        request: context.request,
        workspace: context.workspace,
        isLocal: context.isLocal,
        serves: 'call',
        outside: noSession(settings, announcements, caller, era === 'legacy'),
      });
      services.serverInfo ??= instance.initialized.serverInfo;
      return instance;
    },
  });
  const replies = new CallConnections({
    clock,
    read: (callId, position, owner) => logs.read(callId, position, owner),
    wake: (callId, by) => engine.wake(callId, by),
  });
  const instances = createInstances(factory, settings, {
    believed: (client, caller, authInfo) => asking?.believed(client, caller, authInfo) ?? client,
    onOpen: (instance) => guards.saw(instance),
    heap,
    runsOn: (...held) => engine.countOn(...held),
  });
  heap.onFull.add(() => engine.letGo());
  const sweeping = every(systemClock, SWEEP_EVERY, () => {
    logs.sweep().then(
      (deleted) => {
        if (deleted > 0) logger.debug('expired records were deleted', { deleted });
      },
      (error: unknown) => logger.warn('expired records could not be deleted; trying again later', { error }),
    );
  });
  const { tasks } = engine;
  // Tasks continue after their process died, even if no client asks about them.
  if (tasks !== undefined && taskIndex !== undefined && store?.isShared === true) {
    const seen: SeenRows = new Map();
    sweeper = sweepTasks({
      clock,
      lease: limits.lease,
      added: () => taskIndex.added(seen),
      store,
      progress: (id, from) => tasks.progress(id, from),
      runsHere: (id) => tasks.runs(id),
      hasRoom: ({ principal }) => tasks.hasRoom(principal),
      takeUp: (call, at) => engine.takeUpTask(call, at),
      failed: (error) => logger.warn('tasks could not be read; trying again', { error }),
    });
  }
  let hasLeft = false;
  const services: Services = {
    settings,
    table,
    principal,
    instances,
    isElsewhere: holdsServers,
    engine,
    sealer,
    store,
    names,
    now,
    retry,
    logs,
    replies,
    streams,
    writing: new Set(),
    counters,
    traffic,
    rates,
    marks,
    guards,
    taskIndex,
    announcements,
    heap,
    asking,
    page:
      asking &&
      settings.ask &&
      new AskPage({
        settings: settings.ask,
        asking,
        sealer,
        check,
        logger,
        now,
        ready,
        guessed: (inbound) => rates?.badToken(inbound),
      }),
    get hasLeft() {
      return hasLeft;
    },
    ready,
    async health() {
      if (!(await hasSecrets())) return 'the secrets cannot be had';
      return (await store?.answers()) === false ? 'the store does not answer' : undefined;
    },
    listStream: async (caller, id, scope) => {
      if (caller !== undefined && store?.isShared) await callIndex?.addOwn(`${id} ${scope}`, caller);
    },
    suspended: async (caller) => calls?.suspended(caller) ?? 0,
    async forget(caller) {
      const unwritten = engine.forget(caller);
      const count = await calls?.forget(caller, (call) => {
        engine.tasks?.forget(call.id);
        audit('forgotten', call);
      });
      // Last, so that clients hear that their calls were ended.
      traffic.connections.close(caller);
      return unwritten + (count ?? 0);
    },
    async leave() {
      sweeping.cancel();
      // A task that is given up here would be taken up here again.
      sweeper?.stop();
      await Promise.all([engine.leave(), peers?.leave(limits.drain)]);
      await within(systemClock, LAST_EVENTS, written(services.writing));
      hasLeft = true;
      streams.handOverAll();
      // A call that runs here ends its reply, or hands it over, itself.
      replies.handOverAll((callId) => engine.runs(callId));
    },
    async close() {
      watch?.stop();
      load?.stop();
      heap.stop();
      await engine.close();
      instances.close();
      await within(systemClock, limits.drain, written(services.writing));
      replies.close();
      announcements.close();
      await within(systemClock, limits.drain, streams.close());
      await peers?.close();
    },
  };
  return services;
}

/** Outcomes of the last turns are still on their way to their streams, and what is noted of them comes after that. */
async function written(writing: ReadonlySet<Promise<unknown>>): Promise<void> {
  do {
    await Promise.allSettled(writing);
    await nextTurn();
  } while (writing.size > 0);
}

/** An index holds ids, and some of them are all it takes to have a task: they are sealed, `encrypt` or not. */
function sealedRecords(store: KeyvCallStore, sealer: Sealer): IndexRecords {
  return {
    insert: (name, id, expires, holder) =>
      store.insert(name, sealer.seal('task', { id }, expires), expires, defined({ holder })),
    get: async (name) => {
      const found = await store.get(name);
      if (found === undefined || found === null) return undefined;
      const { id } = await sealer.open('task', found).catch((): JsonObject => ({}));
      return id ?? null;
    },
  };
}

/** Opens an instance for a request that is neither a call nor a session's. */
export function openForRequest(
  { settings, announcements, instances, principal: principalOf }: Services,
  inbound: Inbound,
  opening: Pick<Opening, 'era' | 'revision' | 'client'> & Partial<Pick<Opening, 'workspace' | 'isLocal'>>,
): Promise<HostInstance> {
  const principal = principalOf(inbound.authInfo);
  return instances.open({
    ...opening,
    id: crypto.randomUUID(),
    principal,
    authInfo: inbound.authInfo,
    request: () => inbound.request(),
    serves: 'request',
    outside: noSession(settings, announcements, principal),
  });
}

/**
 * The parts for what a server says outside of calls on revisions without sessions: its asks have no client.
 * @param caller for whom the instance is opened
 * @param inReplies whether what a tool says of its server is part of its call's reply: 2026-07-28 has listeners for it
 */
function noSession(
  settings: Settings,
  announcements: Announcements,
  caller: string | undefined,
  inReplies = false,
): Outside {
  const own = settings.instance === 'process' ? null : caller;
  const notification: Outside['notification'] = (message, frame) =>
    void announcements.announce({ ...message }, frame === undefined ? own : frame.call.principal);
  return {
    isForAll: true,
    notification,
    ...(inReplies && {
      inReply: (message, frame) => {
        notification(message, frame);
        return true;
      },
    }),
    request: (asked) => refuseOutside(asked, settings.logger),
    error: (error) => settings.logger.warn('a server instance reported an error', { error }),
  };
}
