/** A workbench for the engine: no HTTP, no Keyv, no SDK. A tool is a function, a client is a function. */

import { AwaitError, type Clock, canonical, type JsonObject, sleep } from '../../src/base/values.ts';
import { Engine, type EngineParts, type Started } from '../../src/call/engine.ts';
import { currentContext, runInContext, step } from '../../src/call/frame/context.ts';
import type { Frame } from '../../src/call/frame/frame.ts';
import type { AskProgress } from '../../src/call/frame/turn.ts';
import type { CallRecord, Entry, OpenAsk, Response } from '../../src/call/journal/entries.ts';
import { type Entries, JournalWriter } from '../../src/call/journal/writer.ts';
import { type Limits, limitsOf } from '../../src/call/limits.ts';
import type {
  Binding,
  CallStore,
  Instance,
  OpenJournal,
  Outcome,
  Relay,
  RequestContext,
  TokenState,
} from '../../src/call/ports.ts';
import type { HandoffParts } from '../../src/call/run/handoff.ts';
import { steadyClock } from '../fixtures/steady-clock.ts';

export interface ToolApi {
  ask(
    method: string,
    params: JsonObject,
    options?: { timeout?: number; signal?: AbortSignal; progress?: AskProgress },
  ): Promise<JsonObject>;
  elicit(message: string, properties?: JsonObject): Promise<JsonObject>;
  notify(text: string): void;
  readonly step: typeof step;
  readonly cancelled: AbortSignal;
}

export type Tool = (api: ToolApi) => Promise<unknown>;

/** A store that keeps entries as text, as a real one does. */
export class MemoryStore implements CallStore {
  readonly entries = new Map<string, string>();
  readonly lease: number;
  constructor(lease = 10_000) {
    this.lease = lease;
  }

  /** Called before each insert; may throw, as a store that is down does. */
  before: (entry: Entry) => void = () => {};
  /** Called after each insert; may throw, as a store that fails after writing does. */
  after: (entry: Entry) => void = () => {};

  open(call: CallRecord, after: number): OpenJournal {
    const entries: Entries = {
      insert: (position, entry) => this.insertEntry(call, position, entry),
      read: (position) => this.read(call.id, position),
      readOn: (position) => this.readOn(call.id, position),
      beat: (sign) => this.beat(call, sign),
    };
    return new JournalWriter(entries, call, after, steadyClock, this.lease);
  }

  async insertEntry({ id }: CallRecord, position: number, entry: Entry): Promise<boolean> {
    const key = `${id}:${position}`;
    this.before(entry);
    if (this.entries.has(key)) return false;
    this.entries.set(key, JSON.stringify(entry));
    this.after(entry);
    return true;
  }

  async read(callId: string, position: number): Promise<Entry | undefined> {
    const text = this.entries.get(`${callId}:${position}`);
    return text === undefined ? undefined : (JSON.parse(text) as Entry);
  }

  async *readOn(callId: string, position: number): AsyncGenerator<Entry> {
    const entry = await this.read(callId, position);
    if (entry === undefined) return;
    yield entry;
    yield* this.readOn(callId, position + 1);
  }

  /** Signs of life that are written; a test may make a process mute. */
  readonly beats = new Map<string, string>();

  async beat(call: CallRecord, sign: string): Promise<void> {
    this.beats.set(call.id, sign);
  }

  async heard(callId: string): Promise<unknown> {
    return this.beats.get(callId);
  }

  readonly failures = 0;
  readonly isShared = true;
  /** The same store for a process whose signs of life do not arrive. */
  muted(): MemoryStore {
    return Object.create(this, { beat: { value: async () => {} } });
  }

  types(): string[] {
    return [...this.entries.values()].map((text) => (JSON.parse(text) as Entry).type);
  }
}

type Around = <T>(run: () => Promise<T>) => Promise<T>;

/** A journal whose operations go through a test's functions. */
export function wrapped(
  journal: OpenJournal,
  around: {
    readonly write?: <T>(run: () => Promise<T>, make: () => Entry | undefined) => Promise<T>;
    readonly read?: Around;
    readonly beat?: Around;
  },
): OpenJournal {
  const { write = (run) => run(), read = (run) => run(), beat = (run) => run() } = around;
  return {
    get position() {
      return journal.position;
    },
    get lapsed() {
      return journal.lapsed;
    },
    get onReceived() {
      return journal.onReceived;
    },
    set onReceived(onReceived) {
      journal.onReceived = onReceived;
    },
    append: (entry, onWritten) =>
      write(
        () => journal.append(entry, onWritten),
        () => entry,
      ),
    decide: (make, onWritten) => write(() => journal.decide(make, onWritten), make),
    readOn: () => read(() => journal.readOn()),
    beat: (sign) => beat(() => journal.beat(sign)),
  };
}

export interface Workbench {
  readonly engine: Engine;
  readonly log: { level: string; message: string }[];
  /** Instances made, and instances whose cleanup ran. */
  readonly counts: { opened: number; released: number };
}

export interface WorkbenchOptions {
  readonly store?: MemoryStore;
  readonly carry?: boolean;
  readonly limits?: Partial<Limits>;
  readonly parts?: Partial<EngineParts>;
  readonly frame?: Partial<EngineParts['frame']>;
  readonly clock?: Clock;
  readonly relay?: Relay;
}

export function workbench(tool: Tool, options: WorkbenchOptions = {}): Workbench {
  const log: Workbench['log'] = [];
  const counts = { opened: 0, released: 0 };
  const clock = options.clock ?? steadyClock;
  const engine = new Engine({
    ...(options.store !== undefined && { store: options.store }),
    tokens: plainTokens,
    carry: options.carry ?? false,
    check: {
      isResult: (method, _params, value) =>
        method !== 'elicitation/create' || ['accept', 'decline', 'cancel'].includes(String(value.action)),
      keeps: (schema, value) =>
        ((schema.required as string[] | undefined) ?? []).every((name) => name in (value as object)),
      unfit: () => undefined,
    },
    isRefusal: (response) => 'error' in response && response.error.code === -32602,
    frame: {
      drift: 'ask',
      askDelay: 5_000,
      replayGrace: 60,
      maxAsks: 100,
      maxHeldNotifications: 100,
      clock,
      warn: (message) => log.push({ level: 'warn', message }),
      doneTwice: () => {},
      ...options.frame,
    },
    limits: { ...limitsOf(), turnWait: 500, ...options.limits },
    ttl: 3_600_000,
    replay: () => 'allow',
    onDrop: 'forget',
    clock,
    count: () => {},
    log: (level, message) => log.push({ level, message }),
    openInstance: async () => {
      counts.opened += 1;
      return instanceOf(tool, counts);
    },
    ...(options.relay !== undefined && { handoff: plainHandoff(options.relay) }),
    ...options.parts,
  });
  return { engine, log, counts };
}

function plainHandoff(relay: Relay): HandoffParts {
  return {
    relay,
    seal: (message) => JSON.stringify(message),
    open: async (text) => JSON.parse(text) as JsonObject,
  };
}

/** Tokens in plain text: the engine does not seal. */
const plainTokens = {
  seal: async (state: TokenState, binding: Binding) => JSON.stringify({ state, binding }),
  open: async (token: string, binding: Binding): Promise<TokenState> => {
    let opened: { state: TokenState; binding: Binding };
    try {
      opened = JSON.parse(token) as typeof opened;
    } catch (error) {
      throw new AwaitError('bad-token', 'no JSON', error);
    }
    if (canonical(opened.binding) !== canonical(binding))
      throw new AwaitError('bad-token', 'bound to another');
    return opened.state;
  },
};

function instanceOf(tool: Tool, counts: { released: number }): Instance {
  const abort = new AbortController();
  return {
    call(frame) {
      void runInContext(frame.context, async () => {
        try {
          frame.finish({ result: { value: await tool(apiOf(frame, abort.signal)) } });
        } catch (error) {
          const { code, data } = error as { code?: unknown; data?: unknown };
          // As the SDKs do: an error with its own code is passed on unchanged.
          const own = typeof code === 'number' ? { code, data } : { code: -32603 };
          frame.finish({ error: { message: String(error), ...own } });
        }
      });
    },
    refresh() {},
    cancel: () => abort.abort(),
    release: () => {
      counts.released += 1;
    },
  };
}

function apiOf(frame: Frame, cancelled: AbortSignal): ToolApi {
  const ask: ToolApi['ask'] = async (method, params, options = {}) => {
    const response = await frame.ask(
      method,
      params,
      { inContext: true, ...options },
      currentContext()?.stepPath,
    );
    if ('error' in response) throw new Error(response.error.message);
    return structuredClone(response.result);
  };
  return {
    ask,
    elicit: (message, properties = { a: { type: 'string' } }) =>
      ask('elicitation/create', { mode: 'form', message, requestedSchema: { type: 'object', properties } }),
    notify: (text) =>
      frame.notify({ method: 'notifications/message', params: { level: 'info', data: text } }),
    step,
    cancelled,
  };
}

export const BINDING: Binding = { revision: 'test', method: 'tools/call', target: 'tool', args: 'none' };

export function requestContextOf(
  options: Partial<RequestContext> & { heard?: string[] } = {},
): RequestContext {
  const { heard, ...rest } = options;
  return {
    live: false,
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    notify: (notification) => heard?.push(String((notification.params as JsonObject).data)),
    ...rest,
  };
}

export function start(
  engine: Engine,
  context: RequestContext = requestContextOf(),
  responses?: unknown,
  binding = BINDING,
): Promise<Outcome> {
  return engine.start(
    {
      method: 'tools/call',
      params: { name: 'tool' },
      requestId: 1,
      client: {
        capabilities: context.capabilities,
        info: { name: 'test', version: '1' },
        protocolVersion: '2025-11-25',
      },
      binding,
      ...(responses !== undefined && { responses }),
    },
    context,
  ).outcome;
}

export type Suspended = Extract<Outcome, { kind: 'suspended' }>;

export function suspended(outcome: Outcome): Suspended {
  if (outcome.kind !== 'suspended') throw new Error(`not suspended: ${JSON.stringify(outcome)}`);
  return outcome;
}

export function resultOf(outcome: Outcome): unknown {
  if (outcome.kind !== 'responded' || !('result' in outcome.response)) {
    throw new Error(`no result: ${JSON.stringify(outcome)}`);
  }
  return outcome.response.result.value;
}

export function errorOf(outcome: Outcome): Extract<Response, { error: unknown }>['error'] {
  if (outcome.kind !== 'responded' || !('error' in outcome.response)) {
    throw new Error(`no error: ${JSON.stringify(outcome)}`);
  }
  return outcome.response.error;
}

/** An answer that repeats its question. */
export function accept(
  ask: OpenAsk,
  content: JsonObject = { a: `re: ${String(ask.params.message)}` },
): JsonObject {
  return { action: 'accept', content };
}

export function answers(
  outcome: Suspended,
  answer: (ask: OpenAsk) => JsonObject = (ask) => accept(ask),
): JsonObject {
  return Object.fromEntries(outcome.asks.map((ask) => [ask.key, answer(ask)]));
}

/** Answers every round, each at the engine that `next` names, until there is an outcome. */
export async function complete(
  first: Outcome,
  next: () => Engine,
  answer?: (ask: OpenAsk) => JsonObject,
): Promise<Outcome> {
  let outcome = first;
  for (let round = 0; outcome.kind === 'suspended' && round < 50; round += 1) {
    outcome = await next().resume(outcome.token, BINDING, answers(outcome, answer), requestContextOf());
  }
  return outcome;
}

/** A live request that records asks and notifications. */
export function listening(): { context: RequestContext; asked: OpenAsk[]; heard: string[] } {
  const asked: OpenAsk[] = [];
  const heard: string[] = [];
  const context = { ...requestContextOf({ heard }), live: true, ask: (ask: OpenAsk) => void asked.push(ask) };
  return { context, asked, heard };
}

/** Begins a call that goes on without its request. */
export function beginResumable(engine: Engine, context: RequestContext, binding: Binding = BINDING): Started {
  const client = {
    capabilities: context.capabilities,
    info: { name: 'test', version: '1' },
    protocolVersion: '2025-11-25',
  };
  const params: JsonObject = { name: 'tool' };
  return engine.start(
    { method: 'tools/call', params, requestId: 1, client, binding, resumable: true },
    context,
  );
}

/** In the time of the engines of this file, which does not go on while they get no CPU. */
export const pause = (ms = 2): Promise<void> => sleep(steadyClock, ms);

export async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; !condition(); tries += 1) {
    if (tries > 1_000) throw new Error('it never came');
    await pause();
  }
}

/** The id of the only call in a store. */
export const callIn = (store: MemoryStore): string => [...store.entries.keys()][0]?.split(':')[0] ?? '';
