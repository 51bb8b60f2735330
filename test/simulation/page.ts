/**
 * Calls whose client cannot be asked, or by URL mode alone: a person answers on the page, at any process, with two
 * browsers at once, while the client loses patience, calls again elsewhere, and answers for the person itself.
 */
import fc from 'fast-check';
import { ContinuedCall } from '../../src/ask/continued-call.ts';
import { isForm, WaitingCalls } from '../../src/ask/waiting-calls.ts';
import { digest } from '../../src/base/digest.ts';
import { type Clock, canonical, isObject, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { Engine, EngineParts } from '../../src/call/engine.ts';
import type { CallRecord, Completion, Response } from '../../src/call/journal/entries.ts';
import { isContinued } from '../../src/call/journal/entries.ts';
import type { Outcome } from '../../src/call/ports.ts';
import { answerName, stoppedName } from '../../src/checkpoint/page-records.ts';
import { CHECK, Cluster, LEASE } from './cluster.ts';
import { answerTo, expected, has, isDeterministic, racesTimers } from './plan.ts';
import { SimulatedRelay } from './relay.ts';
import {
  CALM,
  END,
  isTransient,
  lackOf,
  populate,
  type Report,
  repeatedIn,
  type Scenario,
  scenarios,
} from './scenario.ts';
import { SimulatedStore } from './store.ts';
import { type Life, World } from './world.ts';

export interface PageScenario extends Scenario {
  readonly page: {
    /** Whether its client takes URLs, and opens the page by them. */
    readonly urls: boolean;
    /** Whether it says that it takes forms: it answers them, or declines them at once, and is not proven. */
    readonly forms?: boolean;
    /** Whether each request has the call's idempotency key. */
    readonly named: boolean;
    /**
     * Whether that is another one in each request; from a client that is asked itself, once it was told that the call waits:
     * a reply that is lost has it send the same request again.
     */
    readonly newKeys?: boolean;
    /** Probability that the client answers a URL itself, for the person. */
    readonly declines: number;
    /** How long the person takes, in milliseconds. */
    readonly pace: number;
    /** Whether the client stops the call for a while, once it waits. */
    readonly stops: boolean;
  };
}

const PERSON = 'ann';
/** Of URLs that a tool throws its client is told in another way; clocks that are an hour off end what is repeated. */
export const pageScenarios: fc.Arbitrary<PageScenario> = fc
  .record({
    scenario: scenarios.filter(({ plan }) => !has(plan, 'url')),
    page: fc.record({
      urls: fc.boolean(),
      forms: fc.boolean(),
      named: fc.boolean(),
      newKeys: fc.boolean(),
      declines: fc.constantFrom(0, 0, 0.3),
      pace: fc.constantFrom(20, 400, 3_000),
      stops: fc.boolean(),
    }),
  })
  .map(({ scenario, page }) => ({
    ...scenario,
    carry: false,
    faults: scenario.faults.filter(({ kind }) => kind !== 'jump'),
    page,
  }));

/** The two browsers of the person give answers that differ. */
const isSame = (text: string): string => text.replaceAll(/ by \d/g, '');

function byBrowser(message: string, browser: number): JsonObject {
  const { content } = answerTo(message) as { content: { a: string } };
  return { action: 'accept', content: { a: `${content.a} by ${browser}` } };
}

class PageWorld {
  readonly #world: World;
  readonly #store: SimulatedStore;
  readonly #scenario: PageScenario;
  readonly #books = new WeakMap<Life, WaitingCalls>();
  /** Calls that wait, or did, of which the person has got the link. */
  readonly waiting = new Set<string>();
  cluster!: Cluster;
  over = false;
  /** How often its client was told that the call waits. */
  told = 0;

  constructor(world: World, store: SimulatedStore, scenario: PageScenario) {
    this.#world = world;
    this.#store = store;
    this.#scenario = scenario;
  }

  /** What a process has of it, as `PageAsks` gives it to its engine. */
  readonly parts = (
    life: Life,
    clock: Clock,
    engine: () => Engine,
  ): Pick<EngineParts, 'route' | 'outlasts' | 'time'> => {
    const { named } = this.#scenario.page;
    const records = this.#store.recordsFor(life, clock, LEASE);
    const store = this.#store.for(life, clock, LEASE);
    const time = (): number => this.#world.time;
    const calls = new WaitingCalls({
      store: {
        ...records,
        read: store.read,
        time,
      },
      records,
      names: { guessable: (...parts) => [digest(parts)] },
      ttl: 3_600_000_000,
      now: () => clock.now(),
      urlOf: ({ id }) => `https://page/${id}`,
      server: () => 'simulated',
    });
    this.#books.set(life, calls);
    const opened = ({ id }: CallRecord): void => void this.waiting.add(id);
    return {
      time,
      outlasts: ({ id }) =>
        isContinued(id) ? undefined : { person: PERSON, ...(named && { key: this.#keyOf(id) }) },
      route: (home, call, context, how) => {
        if (call.outlasted === undefined) return undefined;
        const { person, key } = call.outlasted;
        const parts = {
          engine: engine(),
          calls,
          clock,
          check: CHECK,
          isShared: true,
          holdsServers: false,
          lease: LEASE,
          opened,
          ended: () => {},
        };
        return new ContinuedCall(parts, { call, context, person, key, home, ...how });
      },
    };
  };

  #keyOf(requestId: string): string {
    const { newKeys = false, forms = false } = this.#scenario.page;
    if (!newKeys) return 'the same';
    return forms ? `key ${this.told}` : requestId;
  }

  /** The person gets the links in what their agent is told. */
  read(outcome: Outcome | undefined): void {
    for (const [, id = ''] of JSON.stringify(outcome ?? {}).matchAll(/https:..page.([\w.~-]+)/g))
      this.waiting.add(id);
  }

  /** Opens the links that came, at whichever process, and answers. */
  async browse(browser: number): Promise<void> {
    const world = this.#world;
    while (!this.over) {
      await this.pause(this.#scenario.page.pace * world.between(0.5, 2));
      for (const callId of this.waiting) {
        const { life } = this.somewhere();
        // What it awaits is lost with its process, as a request is.
        await Promise.race([this.#answer(life, callId, browser).catch(() => {}), this.pause(3_000)]);
      }
    }
  }

  async #answer(life: Life, callId: string, browser: number): Promise<void> {
    const calls = this.#books.get(life);
    const standing = await calls?.standing(callId);
    if (calls === undefined || standing?.kind !== 'asks' || standing.claim !== undefined) return;
    const { call, open } = standing.checkpoint;
    for (const ask of open.filter(isForm)) {
      if ((await calls.answerTo(call.id, ask.key)) !== undefined) continue;
      // As the page does, after it has read all else.
      if (await calls.isStopped(call.id)) return;
      const result = byBrowser(String(ask.params.message), browser);
      const given = { response: { result }, by: PERSON, route: 'page', time: this.#world.time } as const;
      const isFirst = await calls.answer(call, ask, given);
      if (isFirst) this.#isKept(call, ask.key, given.response);
    }
  }

  /** An answer that the person was told to be the first one stays it. */
  #isKept(call: CallRecord, key: string, response: Response): void {
    const kept = this.answers(call.id, key);
    if (canonical(kept) !== canonical(response))
      this.#world.violated(`${key} was answered by ${JSON.stringify(response)}, not ${JSON.stringify(kept)}`);
  }

  /** The answer that counts, by the records. */
  answers(callId: string, key: string): Response | undefined {
    const text = this.#store.records.get(answerName(callId, key));
    return text === undefined ? undefined : (JSON.parse(text) as { response: Response }).response;
  }

  /**
   * What the person and the client answered, as far as it counts; nothing where more than one call began: a client that
   * lost its patience while the store was away may have begun another one, and the person have answered that.
   */
  counted(): string[] {
    if ([...this.#store.journals.keys()].filter(isContinued).length !== 1) return [];
    return [...this.#store.records].flatMap(([name, record]) => {
      if (!name.includes(':answer ')) return [];
      const { response } = JSON.parse(record) as { response: Response };
      const content = 'result' in response ? objectOf(response.result.content) : {};
      return typeof content.a === 'string' ? [content.a] : [];
    });
  }

  somewhere(): Cluster['processes'][number] {
    const { processes } = this.cluster;
    return processes[Math.floor(this.#world.random() * processes.length)] as Cluster['processes'][number];
  }

  pause(time: number): Promise<void> {
    return new Promise((resolve) => this.#world.after(time, resolve));
  }
}

class AgentClient {
  readonly #world: World;
  readonly #page: PageWorld;
  readonly #store: SimulatedStore;
  readonly #scenario: PageScenario;
  #hasStopped = false;

  constructor(world: World, store: SimulatedStore, page: PageWorld, scenario: PageScenario) {
    this.#world = world;
    this.#store = store;
    this.#page = page;
    this.#scenario = scenario;
  }

  /** Calls the tool again and again, with the same arguments, until it is done. */
  async call(): Promise<void> {
    for (;;) {
      const outcome = await this.#request();
      this.#page.read(outcome);
      if (outcome?.kind === 'responded' && !isTransient(outcome) && !isToComeAgain(outcome.response)) {
        if (!isNotDoneYet(outcome.response)) return this.#judge(outcome.response);
        this.#page.told += 1;
        await this.#stopOnce();
      }
      await this.#page.pause(this.#world.between(5, 400));
    }
  }

  /** A request with all of its rounds. */
  async #request(): Promise<Outcome | undefined> {
    let outcome = await this.#post(undefined);
    while (outcome?.kind === 'suspended') {
      const { asks, token } = outcome;
      this.#page.read(outcome);
      const responses: Record<string, JsonObject> = {};
      for (const { key, params } of asks) {
        const { forms = false, declines } = this.#scenario.page;
        const isForm = params.mode !== 'url';
        if (isForm !== forms) this.#world.violated(`its client is asked ${JSON.stringify(params)}`);
        responses[key] = this.#world.chance(isForm ? declines * 2 : declines)
          ? { action: 'decline' }
          : isForm
            ? byBrowser(String(params.message), 3)
            : { action: 'accept' };
      }
      outcome = await this.#post({ token, responses });
    }
    return outcome;
  }

  #post(turn: { token: string; responses: JsonObject } | undefined): Promise<Outcome | undefined> {
    const { cluster } = this.#page;
    const patience = this.#world.time > CALM ? 60_000 : this.#scenario.client.patience;
    return cluster.post(Math.floor(this.#world.random() * cluster.processes.length), turn, patience);
  }

  /** Calls once more, and stops that while it waits: then no answer is taken until the call comes again. */
  async #stopOnce(): Promise<void> {
    const { page, faults, outages } = this.#scenario;
    // A request that ends with its process stops nothing, nor does one that the store does not hear of.
    if (
      !page.stops ||
      page.urls ||
      page.forms ||
      page.named ||
      faults.length + outages.length > 0 ||
      this.#hasStopped
    )
      return;
    this.#hasStopped = true;
    const { cluster } = this.#page;
    const nth = Math.floor(this.#world.random() * cluster.processes.length);
    const outcome = await cluster.post(nth, undefined, 150);
    if (outcome !== undefined) return;
    await this.#page.pause(1_000);
    for (const id of this.#page.waiting) {
      const open = this.#openOf(id);
      if (open.length === 0) continue;
      const stopped = this.#store.records.get(stoppedName(id));
      if (stopped !== JSON.stringify({ is: true }))
        this.#world.violated(`${id} goes on waiting, though it was stopped`);
      await this.#page.pause(5_000);
      for (const key of open)
        if (this.#page.answers(id, key) !== undefined)
          this.#world.violated(`${key} was answered in a stopped call`);
    }
  }

  /** The keys of a call that waits for its person, and has no answer to any. */
  #openOf(callId: string): string[] {
    const last = this.#store.of(callId).at(-1)?.entry;
    if (last?.type !== 'suspended') return [];
    const keys = last.checkpoint.open.map(({ key }) => key);
    return keys.some((key) => this.#page.answers(callId, key) !== undefined) ? [] : keys;
  }

  #judge(response: Response): void {
    const { plan, page } = this.#scenario;
    const isAnsweredFor = (page.urls || page.forms) && page.declines > 0;
    if ('error' in response) {
      if (!racesTimers(plan) && !isAnsweredFor)
        this.#world.violated(`it ended with ${JSON.stringify(response.error)}`);
    } else if (isDeterministic(plan)) {
      const wanted = canonical(expected(plan));
      const got = isSame(canonical(response.result.value));
      if (got !== wanted) this.#world.violated(`its result is ${got}, not ${wanted}`);
      for (const text of this.#page.counted())
        if (!canonical(response.result.value).includes(text))
          this.#world.violated(`its tool did not get ${text}, the answer that counts`);
    }
  }
}

/** The error of the call that waits, which says to send the same request again. */
function isToComeAgain(response: Response): boolean {
  if (!('error' in response) || !isObject(response.error.data)) return false;
  const own = response.error.data['mcp-await'];
  return isObject(own) && own.retry === true;
}

function isNotDoneYet(response: Response): boolean {
  return (
    'result' in response && isObject(response.result._meta) && 'mcp-await/waiting' in response.result._meta
  );
}

export async function playPage(scenario: PageScenario): Promise<Report> {
  const world = new World(scenario.seed);
  const store = new SimulatedStore(world, scenario.outages, scenario.pace);
  const relay = new SimulatedRelay(world, scenario.weather ?? { loss: 0, twice: 0, delay: 1 });
  const page = new PageWorld(world, store, scenario);
  const { plan, frames, weather } = scenario;
  const cluster = new Cluster(world, store, relay, {
    plan,
    carry: false,
    frames,
    relayed: weather !== undefined,
    page: page.parts,
    // The first outcome of a key is that of all its requests.
    ...(!scenario.page.named && lackOf(scenario)),
    declares: {
      ...((scenario.page.urls || scenario.page.forms) && {
        elicitation: { ...(scenario.page.urls && { url: {} }), ...(scenario.page.forms && { form: {} }) },
      }),
    },
  });
  page.cluster = cluster;
  populate(world, cluster, scenario);
  for (const browser of [1, 2]) void page.browse(browser);
  void new AgentClient(world, store, page, scenario).call().then(
    () => {
      page.over = true;
    },
    (error: unknown) => world.violated(`the client failed: ${String(error)}`),
  );
  await world.run(() => page.over, END);
  if (!page.over) world.violated('the call neither ended nor waits for its person');
  const continued = [...store.journals].filter(([callId]) => isContinued(callId));
  for (const [callId, journal] of continued) checkAnswers(world, page, callId, journal);
  const { named, newKeys = false, forms = false } = scenario.page;
  if (named && (forms || !newKeys) && continued.length > 1)
    world.violated(`${continued.length} calls began, though each request had a key of the first`);
  return { violations: world.violations, repeated: repeatedIn(cluster), time: world.time };
}

/** An answer counts once, and the first one that came is the one that the call got. */
function checkAnswers(
  world: World,
  page: PageWorld,
  callId: string,
  journal: ReturnType<SimulatedStore['of']>,
): void {
  const answered = new Map<string, Response>();
  const got = (completion: Completion): void => {
    if (completion.kind !== 'answer') return;
    const { key, response } = completion;
    const before = answered.get(key);
    if (before !== undefined && canonical(before) !== canonical(response))
      world.violated(`${key} has two answers in its log`);
    answered.set(key, response);
    if (canonical(page.answers(callId, key)) !== canonical(response))
      world.violated(`${key} got ${JSON.stringify(response)}, and its first answer is another`);
  };
  for (const { entry } of journal) {
    if (entry.type === 'claimed') entry.answers.forEach(got);
    if (entry.type === 'completed') got(entry.completion);
    if (entry.type !== 'suspended') continue;
    for (const { key } of entry.checkpoint.open)
      if (answered.has(key)) world.violated(`${key} is asked again, whose answer was taken in`);
  }
}
