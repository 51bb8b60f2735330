/** The option `ask` at work: which calls are for a person, what their servers are told, and who is told of them. */
import {
  type Clock,
  callAt,
  defined,
  ELICIT,
  isObject,
  type JsonObject,
  type Repeating,
} from '../base/values.ts';
import { sortAnswers } from '../call/ask/answer.ts';
import { missingCapability } from '../call/ask/capability.ts';
import type { Engine, EngineParts } from '../call/engine.ts';
import {
  type CallRecord,
  type Client,
  isContinued,
  type OpenAsk,
  type Outlasted,
} from '../call/journal/entries.ts';
import type { RequestContext } from '../call/ports.ts';
import type { IndexRecords } from '../call/task/index.ts';
import type { TaskView } from '../call/task/tasks.ts';
import type { KeyvCallStore } from '../checkpoint/call-store.ts';
import type { Names } from '../checkpoint/names.ts';
import type { Sealer } from '../checkpoint/sealed.ts';
import type { Logger } from '../observe/logger.ts';
import { ContinuedCall, notDoneYet, withForms } from './continued-call.ts';
import type { AskEvent, PageOptions } from './options.ts';
import { expiryOf, isForm, type KeptAnswer, WaitingCalls, type WaitsFor } from './waiting-calls.ts';

/** In `_meta` of a call: names it, so that it runs once however often its request comes. */
const KEY = 'mcp-await/idempotency-key';

/** The option, and its page. */
export interface AskSettings extends PageOptions {
  readonly url: URL;
}

export interface PageAsksParts {
  /** Undefined without a page: then there are idempotency keys alone. */
  readonly settings: AskSettings | undefined;
  readonly lease: number;
  readonly holdsServers: boolean;
  readonly store: KeyvCallStore;
  readonly records: IndexRecords;
  readonly names: Names;
  readonly sealer: Sealer;
  readonly ttl: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly mayReplay: EngineParts['replay'];
  readonly check: EngineParts['check'];
  readonly engine: () => Engine;
  /** The server's name, once it is known. */
  readonly server: () => string;
  readonly answered: (call: CallRecord, answer: KeptAnswer) => void;
}

/** What an operator is told of a call that waits. */
type Asked = Pick<AskEvent, 'person' | 'url' | 'tool'>;

export class PageAsks {
  readonly calls: WaitingCalls;
  readonly #parts: PageAsksParts;
  /** Tools whose calls may not be run again, of which the log was told. */
  readonly #told = new Set<string>();
  /** By the ids of calls that wait for a person, as far as this process opened their asks. */
  readonly #expiries = new Map<string, Repeating>();

  constructor(parts: PageAsksParts) {
    this.#parts = parts;
    const { store, records, names, sealer, ttl, clock, settings, server, answered } = parts;
    const urlOf = ({ id, expires }: CallRecord): string =>
      `${settings?.url.href}/${sealer.seal('ask', { id }, expires)}`;
    this.calls = new WaitingCalls({ store, records, names, ttl, now: clock.now, urlOf, server, answered });
  }

  /** What a server is told of its client: that it can be asked by forms, where a person can. */
  believed(client: Client, principal: string | undefined, authInfo: JsonObject | undefined): Client {
    if (principal === undefined || this.#person(authInfo) === undefined) return client;
    return believing(client);
  }

  /** See `EngineParts`. */
  readonly outlasts = (call: CallRecord, context: RequestContext): Outlasted | undefined => {
    if (call.method !== 'tools/call' || call.principal === undefined) return undefined;
    // What runs in a continued call's own instance is the tool.
    if (isContinued(call.id)) return undefined;
    const person = this.#personFor(call, context);
    const key = keyOf(call.params, context);
    return person === undefined && key === undefined ? undefined : defined({ person, key });
  };

  /** See `EngineParts`. */
  readonly route: NonNullable<EngineParts['route']> = (home, call, context, how) => {
    if (call.outlasted === undefined || context.isRehearsal) return undefined;
    const { person, key } = call.outlasted;
    const { engine, store, lease, check, clock, holdsServers } = this.#parts;
    const parts = {
      engine: engine(),
      calls: this.calls,
      clock,
      check,
      isShared: store.isShared,
      holdsServers,
      lease,
      opened: (waiting: CallRecord, waits: WaitsFor, asks: readonly OpenAsk[]) =>
        this.#opened(waiting, waits, asks),
      ended: (callId: string) => this.settled(callId),
    };
    return new ContinuedCall(parts, { call, context, person, key, home, ...how });
  };

  /** See `EngineParts`. A client's user has answered what the page asks by now: the first answer counts. */
  readonly late: NonNullable<EngineParts['late']> = async (callId, principal, key, response) => {
    if ('error' in response || isContinued(callId)) return false;
    const { clock, check } = this.#parts;
    for (const id of await this.calls.continuedBy(callId)) {
      const standing = await this.calls.standing(id);
      if (standing.kind !== 'asks' || standing.claim?.answers.some((one) => one.key === key)) continue;
      const { call, open } = standing.checkpoint;
      const ask = open.find((one) => one.key === key);
      if (ask === undefined || call.principal !== principal) continue;
      // One that was sent a URL was not asked: the page's answer is the answer.
      if ((await this.calls.doubtOf(call, ask))?.isForm !== true) continue;
      const { accepted } = sortAnswers([ask], { [key]: response.result }, clock.now(), check);
      const [given] = accepted;
      if (given === undefined || 'error' in given.response) continue;
      const had = this.calls.time() - (await this.calls.asked(call, ask));
      if (!(await this.calls.believes(call, given.response.result, had))) continue;
      return this.calls.answer(call, ask, {
        response: given.response,
        by: '',
        route: 'client',
        time: clock.now(),
      });
    }
    return false;
  };

  /** What a task says of itself while it waits for a person. */
  async waiting({ call, status }: TaskView): Promise<JsonObject> {
    const { calls } = this;
    const ids = status === 'working' && call.outlasted?.person ? await calls.continuedBy(call.id) : [];
    for (const id of ids) {
      const waits = await calls.waitsFor(id);
      const standing = await calls.standing(id);
      if (waits === undefined || standing.kind !== 'asks') continue;
      const asks = standing.checkpoint.open.filter(isForm);
      const { text, _meta } = notDoneYet(call, waits.url, asks, 'When they have answered, the task goes on.');
      return { statusMessage: text, _meta };
    }
    return {};
  }

  #personFor(call: CallRecord, context: RequestContext): string | undefined {
    // Also where its client can be asked: the tool may ask for a person.
    const isAsked = missingCapability(call.client.capabilities, ELICIT, {}) === undefined;
    const person = this.#person(context.authInfo);
    if (person === undefined || this.#parts.mayReplay(call, []) === 'allow') return person;
    const tool = String(call.params.name);
    if (!isAsked && !this.#told.has(tool) && this.#told.size < 1_000)
      this.#parts.logger.warn(
        'the asks of a tool are not on the page, since its calls may not be run again',
        {
          tool,
        },
      );
    if (!isAsked) this.#told.add(tool);
    return undefined;
  }

  #person(authInfo: JsonObject | undefined): string | undefined {
    const { settings, logger } = this.#parts;
    try {
      const person: unknown = settings?.person(authInfo);
      if (person instanceof Promise) {
        person.catch(() => {});
        throw new Error('it returned a promise');
      }
      return typeof person === 'string' && person !== '' ? person : undefined;
    } catch (error) {
      logger.error('ask.person threw; the caller has no person', { error });
      return undefined;
    }
  }

  #opened({ id, params, expires }: CallRecord, { person, url }: WaitsFor, asks: readonly OpenAsk[]): void {
    // The call itself, with its arguments, is not kept until then.
    const asked = { person, url, tool: String(params.name) };
    this.tell('opened', asked);
    this.settled(id);
    const tell = async (): Promise<void> => {
      this.#expiries.delete(id);
      const now = await this.calls.standing(id);
      if (now.kind !== 'asks' || now.claim !== undefined || (await this.calls.isAnswered(now))) return;
      this.tell('expired', asked);
    };
    const timer = callAt(this.#parts.clock, expiryOf(expires, asks), () => void tell().catch(() => {}));
    this.#expiries.set(id, timer);
  }

  /** No ask of the call expires any more: it has ended, or its asks are answered. */
  settled(callId: string): void {
    this.#expiries.get(callId)?.cancel();
    this.#expiries.delete(callId);
  }

  /** Tells the operator. */
  tell(what: AskEvent['what'], { person, url, tool }: Asked): void {
    const { settings, logger, clock } = this.#parts;
    const event: AskEvent = { what, person, url, tool, time: clock.now() };
    const told = async (): Promise<unknown> => settings?.on?.(event);
    told().catch((error: unknown) => logger.error('ask.on failed', { what, error }));
  }
}

function keyOf({ _meta: meta }: JsonObject, { idempotencyKey }: RequestContext): string | undefined {
  const key = isObject(meta) && meta[KEY] !== undefined ? meta[KEY] : idempotencyKey;
  if (key === undefined) return undefined;
  // One that is none is refused: without it a call would run twice.
  return typeof key === 'string' ? key : '';
}

/** A client, as a server is told of it that a person can answer for. */
export function believing(client: Client): Client {
  return { ...client, capabilities: withForms(client.capabilities) };
}
