/**
 * The plays of `mcp-await compare --ui`: the scenario or one tool, on one revision, answered by a person, while
 * processes are killed and started.
 * It owns the processes, the running play, and the open questions. One play runs at a time; a new one ends it.
 */
import { isObject, type JsonObject } from '../../src/base/json.ts';
import type { Revision } from '../revisions.ts';
import { speakerOf } from './clients.ts';
import { play, textOf } from './play.ts';
import { type Ask, type Scenario, type Step, titleOf } from './scenario.ts';
import { type ServerProcess, startServer, type Version } from './server-process.ts';
import { configOf, LEASE } from './settings.ts';
import type { Site } from './site.ts';
import { Stage } from './stage.ts';
import { Wire, type WireMessage } from './wire.ts';

export interface LiveAsk extends Ask {
  readonly id: number;
  /** The answer of the scenario, or one made from the schema. */
  readonly suggested: JsonObject;
}

export interface LivePlay {
  readonly revision: Revision;
  readonly client: string;
  readonly titles: readonly string[];
  readonly messages: readonly WireMessage[];
  readonly asks: readonly LiveAsk[];
  /** One line a step, once all have ended; or why they could not be played. */
  readonly outcomes?: readonly string[];
}

/** The state that the page shows. */
export interface LiveState {
  readonly live: string;
  readonly revisions: readonly Revision[];
  readonly scenario: readonly string[];
  readonly tools: readonly { readonly name: string; readonly inputSchema: JsonObject }[];
  readonly processes: readonly { readonly name: string; readonly isRunning: boolean }[];
  readonly play?: LivePlay;
}

interface Process {
  readonly name: string;
  server: ServerProcess | undefined;
  site: Site | undefined;
}

interface Played {
  readonly revision: Revision;
  readonly steps: readonly Step[];
  readonly stage: Stage;
  readonly wire: Wire;
  readonly asks: Map<number, LiveAsk & { readonly settle: (answer: JsonObject) => void }>;
  outcomes?: readonly string[];
}

/** Milliseconds that a step may take: people answer. */
const PATIENCE = 3_600_000;
/** Attempts at a request while no process runs: about a minute. */
const TRIES = 1_200;
const PROCESSES = ['A', 'B'];

export class Live {
  readonly #version: Version;
  readonly #scenario: Scenario;
  readonly #revisions: readonly Revision[];
  readonly #tools: LiveState['tools'];
  readonly #processes: readonly Process[];
  #played: Played | undefined;
  #asked = 0;
  /** Called after each change of the state. */
  onChange: () => void = () => {};

  private constructor(
    version: Version,
    scenario: Scenario,
    revisions: readonly Revision[],
    tools: LiveState['tools'],
    servers: readonly ServerProcess[],
  ) {
    this.#version = version;
    this.#scenario = scenario;
    this.#revisions = revisions;
    this.#tools = tools;
    this.#processes = servers.map((server, nth) => ({
      name: PROCESSES[nth] ?? String(nth),
      server,
      site: undefined,
    }));
  }

  /** @throws AwaitError `bad-option` where the server cannot be started */
  static async start(
    version: Version,
    scenario: Scenario,
    revisions: readonly Revision[],
    tools: LiveState['tools'],
  ): Promise<Live> {
    const servers = await Promise.all(PROCESSES.map(() => startServer(version)));
    return new Live(version, scenario, revisions, tools, servers);
  }

  get state(): LiveState {
    const played = this.#played;
    return {
      live: this.#version.name,
      revisions: this.#revisions,
      scenario: this.#scenario.steps.map(titleOf),
      tools: this.#tools,
      processes: this.#processes.map(({ name, server }) => ({ name, isRunning: server !== undefined })),
      ...(played !== undefined && { play: playOf(played) }),
    };
  }

  /** @param tool a single call; without it the whole scenario is played */
  async run(revision: Revision, tool?: { readonly name: string; readonly args: JsonObject }): Promise<void> {
    await this.#end();
    const steps = tool === undefined ? this.#scenario.steps : [{ call: tool.name, with: tool.args }];
    const [stage, wire] = [new Stage(), await Wire.open([])];
    const played: Played = { revision, steps, stage, wire, asks: new Map() };
    this.#played = played;
    wire.tries = TRIES;
    wire.onMessage = () => this.onChange();
    await Promise.all(this.#processes.map((process) => this.#openSite(process, played)));
    this.onChange();
    void play({
      name: revision,
      revision,
      scenario: { ...this.#scenario, steps, timeout: PATIENCE },
      wire,
      stage,
      by: (ask, suggested) => this.#ask(played, ask, suggested),
    })
      .then((column) => column.steps.map((step) => textOf(step)))
      .catch((error: unknown) => [error instanceof Error ? error.message : String(error)])
      .then((outcomes) => {
        played.outcomes = outcomes;
        played.asks.clear();
        this.onChange();
      });
  }

  /** @returns false for a question that is not open */
  answer(id: number, answer: JsonObject): boolean {
    const ask = this.#played?.asks.get(id);
    if (ask === undefined) return false;
    this.#played?.asks.delete(id);
    ask.settle(answer);
    this.onChange();
    return true;
  }

  /** As SIGKILL does. */
  async kill(name: string): Promise<void> {
    const process = this.#processes.find((one) => one.name === name);
    const { server, site } = process ?? {};
    if (process === undefined || server === undefined) return;
    process.server = undefined;
    process.site = undefined;
    this.#aim();
    await site?.crash();
    server.kill();
    this.onChange();
  }

  /** Starts a process that was killed; the play continues in it as well. */
  async restart(name: string): Promise<void> {
    const process = this.#processes.find((one) => one.name === name && one.server === undefined);
    if (process === undefined) return;
    process.server = await startServer(this.#version);
    if (this.#played !== undefined) await this.#openSite(process, this.#played);
    this.onChange();
  }

  async close(): Promise<void> {
    await this.#end();
    for (const { server } of this.#processes) server?.kill();
  }

  async #openSite(process: Process, { revision, stage }: Played): Promise<void> {
    const setting = { name: process.name, revision, scenario: this.#scenario };
    process.site = await process.server?.open(configOf(setting, 'dropped', { lease: LEASE }), stage);
    this.#aim();
  }

  /** Requests go to the processes that run. */
  #aim(): void {
    if (this.#played === undefined) return;
    this.#played.wire.targets = this.#processes.flatMap(({ name, site }) =>
      site === undefined ? [] : [{ name, url: site.url }],
    );
  }

  async #ask({ asks }: Played, ask: Ask, suggested: JsonObject): Promise<JsonObject> {
    // A client that reconnects gets its open asks again.
    const same = [...asks.values()].find(
      ({ params }) => JSON.stringify(params) === JSON.stringify(ask.params),
    );
    if (same !== undefined) return new Promise((resolve) => asks.set(same.id, also(same, resolve)));
    this.#asked += 1;
    const id = this.#asked;
    return new Promise((settle) => {
      asks.set(id, { ...ask, id, suggested, settle });
      this.onChange();
    });
  }

  async #end(): Promise<void> {
    const played = this.#played;
    this.#played = undefined;
    if (played === undefined) return;
    for (const process of this.#processes) process.site = undefined;
    for (const { settle } of played.asks.values()) settle({ action: 'cancel' });
    await played.wire.close();
    await played.stage.close();
  }
}

function also<T extends { readonly settle: (answer: JsonObject) => void }>(
  ask: T,
  resolve: (answer: JsonObject) => void,
): T {
  const settle = (answer: JsonObject): void => {
    ask.settle(answer);
    resolve(answer);
  };
  return { ...ask, settle };
}

function playOf({ revision, steps, wire, asks, outcomes }: Played): LivePlay {
  return {
    revision,
    client: speakerOf(revision).client,
    titles: steps.map(titleOf),
    messages: wire.messages,
    asks: [...asks.values()].map(({ settle: _, ...ask }) => ask),
    ...(outcomes !== undefined && { outcomes }),
  };
}

/** The tools of a list that a server gave. */
export function toolsIn(listed: readonly JsonObject[]): LiveState['tools'] {
  return listed.map(({ name, inputSchema }) => ({
    name: String(name),
    inputSchema: isObject(inputSchema) ? inputSchema : {},
  }));
}
