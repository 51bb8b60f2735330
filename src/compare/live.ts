/**
 * The plays of `mcp-await compare --ui`: the scenario or one tool, on one revision, answered by a person, while
 * processes are killed and started.
 * It owns the processes, the running play, and the open questions. One play runs at a time; a new one ends it.
 */

import type { Revision } from '../../compat/revisions.ts';
import { defined, isObject, type JsonObject, reasonOf } from '../base/values.ts';
import type { Completion, Entry, OpenAsk } from '../call/journal/entries.ts';
import { serverOptions } from '../host/validator.ts';
import { speakerOf } from './clients.ts';
import { effectDifferences } from './effects/differences.ts';
import { type PlayedStep, play, textOf } from './play.ts';
import { type Ask, type Scenario, type Step, titleOf } from './scenario.ts';
import { type ServerProcess, startServer, type Version } from './server-process.ts';
import { configOf, LEASE } from './settings.ts';
import type { Site } from './site.ts';
import { Stage } from './stage.ts';
import { questionOf } from './user.ts';
import { PlayWire, type WireMessage } from './wire.ts';

export interface LiveAsk extends Ask {
  readonly id: number;
  /** The answer of the scenario, or one made from the schema. */
  readonly suggested: JsonObject;
  /** Where it was answered before: why the server asks again. */
  readonly again?: string;
}

/** The outcome of a step. */
interface LiveOutcome {
  readonly text: string;
  /** As URLs with the data in them. */
  readonly images: readonly string[];
}

export interface LivePlay {
  readonly revision: Revision;
  readonly client: string;
  readonly titles: readonly string[];
  readonly messages: readonly WireMessage[];
  readonly asks: readonly LiveAsk[];
  /** What happened so far, in which process. */
  readonly happenings: readonly Happening[];
  /** Effects outside of steps that the play repeated, once it has ended. */
  readonly findings: readonly string[];
  /** One a step, once all have ended; or why they could not be played. */
  readonly outcomes?: readonly LiveOutcome[];
}

/** The state that the page shows. */
export interface LiveState {
  readonly live: string;
  readonly revisions: readonly Revision[];
  readonly scenario: readonly string[];
  readonly tools: readonly { readonly name: string; readonly inputSchema: JsonObject }[];
  /** Tools that the scenario does not call, since nobody wrote it. */
  readonly uncalled: readonly string[];
  readonly processes: readonly {
    readonly name: string;
    readonly isRunning: boolean;
    /** Why it ended by itself. */
    readonly ended?: string;
  }[];
  readonly play?: LivePlay;
}

/** What a page can run. */
export interface LiveOptions extends Pick<LiveState, 'revisions' | 'tools' | 'uncalled'> {
  readonly scenario: Scenario;
}

interface Process {
  readonly name: string;
  server: ServerProcess | undefined;
  site: Site | undefined;
  ended?: string;
}

interface Played {
  readonly revision: Revision;
  readonly steps: readonly Step[];
  readonly stage: Stage;
  readonly wire: PlayWire;
  readonly asks: Map<number, LiveAsk & { readonly settle: (answer: JsonObject) => void }>;
  /** The last answer to each question. */
  readonly answered: Map<string, JsonObject>;
  readonly sequence: Sequence;
  findings: readonly string[];
  outcomes?: readonly LiveOutcome[];
}

/** Milliseconds that a step may take: people answer. */
const PATIENCE = 3_600_000;
/** Attempts at a request while no process runs: about a minute. */
const TRIES = 1_200;
const PROCESSES = ['A', 'B'];
/** Requests that run a tool, a prompt or a resource. */
const CALLS = /^(tools\/call|prompts\/get|resources\/read) /;

export class Live {
  readonly #version: Version;
  readonly #scenario: Scenario;
  readonly #options: LiveOptions;
  readonly #processes: readonly Process[];
  #played: Played | undefined;
  #asked = 0;
  /** Called after each change of the state. */
  onChange: () => void = () => {};

  private constructor(version: Version, options: LiveOptions, servers: readonly ServerProcess[]) {
    this.#version = version;
    this.#scenario = options.scenario;
    this.#options = options;
    this.#processes = servers.map((server, nth) => ({
      name: PROCESSES[nth] ?? String(nth),
      server,
      site: undefined,
    }));
    for (const process of this.#processes) this.#watch(process);
  }

  /** Shows that a process ended by itself. */
  #watch(process: Process): void {
    const { server } = process;
    void server?.ended.then(({ message }) => {
      if (process.server !== server) return;
      process.server = undefined;
      process.site = undefined;
      process.ended = message;
      this.#played?.sequence.add(process.name, 'process', 'ended by itself');
      this.#aim();
      this.onChange();
    });
  }

  /** @throws AwaitError `bad-option` where the server cannot be started */
  static async start(version: Version, options: LiveOptions): Promise<Live> {
    const servers = await Promise.all(PROCESSES.map(() => startServer(version)));
    return new Live(version, options, servers);
  }

  get state(): LiveState {
    const played = this.#played;
    const { revisions, tools, uncalled } = this.#options;
    return {
      revisions,
      tools,
      uncalled,
      live: this.#version.name,
      scenario: this.#scenario.steps.map(titleOf),
      processes: this.#processes.map(({ name, server, ended }) => ({
        name,
        isRunning: server !== undefined,
        ...defined({ ended }),
      })),
      ...(played !== undefined && { play: playOf(played) }),
    };
  }

  /** @param tool a single call; without it the whole scenario is played */
  async run(revision: Revision, tool?: { readonly name: string; readonly args: JsonObject }): Promise<void> {
    await this.#end();
    const steps = tool === undefined ? this.#scenario.steps : [{ call: tool.name, with: tool.args }];
    const [stage, wire] = [new Stage(), await PlayWire.open([])];
    const sequence = new Sequence(() => this.onChange());
    const played: Played = {
      revision,
      steps,
      stage,
      wire,
      asks: new Map(),
      answered: new Map(),
      sequence,
      findings: [],
    };
    this.#played = played;
    wire.tries = TRIES;
    wire.onMessage = (message) => {
      if (message.kind === 'request' && CALLS.test(message.label))
        sequence.request(message.process, message.label);
      this.onChange();
    };
    stage.store.onEntry = (entry, process) => sequence.entry(entry, process);
    stage.onEffect = ({ what, at }, process) =>
      sequence.add(process, 'effect', `${what} (${at}) outside of a step`);
    stage.onLog = ({ level, message }, process) => sequence.print(process, `${level}: ${message}`);
    stage.onOutput = (text, process) => sequence.print(process, text);
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
      .then((column) => {
        played.findings = effectDifferences({ ...this.#scenario, steps }, [column]).map(({ text }) => text);
        return column.steps.map(liveOutcome);
      })
      .catch((error: unknown) => [{ text: reasonOf(error), images: [] }])
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
    this.#played?.answered.set(JSON.stringify(ask.params), answer);
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
    this.#played?.sequence.add(name, 'process', 'is killed');
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
    delete process.ended;
    this.#watch(process);
    this.#played?.sequence.add(name, 'process', 'is started');
    if (this.#played !== undefined) await this.#openSite(process, this.#played);
    this.onChange();
  }

  async close(): Promise<void> {
    await this.#end();
    for (const { server } of this.#processes) server?.kill();
  }

  async #openSite(process: Process, { revision, stage }: Played): Promise<void> {
    const setting = { name: process.name, revision, scenario: this.#scenario };
    process.site = await process.server?.open(
      configOf(setting, 'dropped', { lease: LEASE }),
      stage,
      process.name,
    );
    this.#aim();
  }

  /** Requests go to the processes that run. */
  #aim(): void {
    if (this.#played === undefined) return;
    this.#played.wire.targets = this.#processes.flatMap(({ name, site }) =>
      site === undefined ? [] : [{ name, url: site.url }],
    );
  }

  async #ask({ asks, answered }: Played, ask: Ask, suggested: JsonObject): Promise<JsonObject> {
    // A client that reconnects gets its open asks again.
    const same = [...asks.values()].find(
      ({ params }) => JSON.stringify(params) === JSON.stringify(ask.params),
    );
    if (same !== undefined)
      return new Promise((resolve) => {
        const settle = (answer: JsonObject): void => {
          same.settle(answer);
          resolve(answer);
        };
        asks.set(same.id, { ...same, settle });
      });
    this.#asked += 1;
    const id = this.#asked;
    const last = answered.get(JSON.stringify(ask.params));
    const again = last && { again: rejectionOf(ask, last) };
    return new Promise((settle) => {
      asks.set(id, { ...ask, id, suggested, ...again, settle });
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

/** Why a question comes back after an answer: in the words of the validator of the server's SDK, or of its tool. */
function rejectionOf({ params }: Ask, { action, content }: JsonObject): string {
  const schema = isObject(params.requestedSchema) && action === 'accept' ? params.requestedSchema : {};
  const { errorMessage } = serverOptions().jsonSchemaValidator.getValidator(schema)(content ?? {});
  return errorMessage === undefined
    ? 'The tool asks this again; the log of its process may say why.'
    : `The server rejected the last answer, and asks again: ${errorMessage}`;
}

/** Characters of an outcome; all of it is in its message. */
const MOST = 20_000;

function liveOutcome(step: PlayedStep): LiveOutcome {
  const text = textOf(step);
  const content: unknown = 'result' in step.outcome ? step.outcome.result.content : undefined;
  const images = (Array.isArray(content) ? content : []).flatMap(({ type, mimeType, data }: JsonObject) =>
    type === 'image' && /^image\/[\w.+-]+$/.test(String(mimeType))
      ? [`data:${String(mimeType)};base64,${String(data)}`]
      : [],
  );
  return {
    text: text.length > MOST ? `${text.slice(0, MOST)}… (cut: the message has all of it)` : text,
    images,
  };
}

function playOf({ revision, steps, wire, asks, sequence, findings, outcomes }: Played): LivePlay {
  return {
    revision,
    client: speakerOf(revision).client,
    titles: steps.map(titleOf),
    messages: wire.messages,
    happenings: sequence.happenings,
    findings,
    asks: [...asks.values()].map(({ settle: _, ...ask }) => ask),
    ...defined({ outcomes }),
  };
}

// --- the sequence of a play ---

/**
 * What happens to the calls of a live play, in order: which process runs the tool, where it waits, what a replay takes
 * from the journal, who dies, and what each process logs. It is made of the journal's entries as they are written.
 */

/** One line of the sequence. */
export interface Happening {
  /** The process it happened in; empty for the client. */
  readonly process: string;
  readonly kind: 'runs' | 'waits' | 'journal' | 'step' | 'answer' | 'ended' | 'process' | 'effect' | 'log';
  readonly text: string;
}

/** Most lines of logs that are shown. */
const MOST_LOGS = 500;

class Sequence {
  readonly happenings: Happening[] = [];
  readonly #questions = new Map<string, string>();
  #printed = 0;
  /** What is in the journal of the call: a replay takes it from there. */
  #recorded: string[] = [];
  /** The process that runs the call, or where it waits. */
  #owner: string | undefined;
  readonly #onAdd: () => void;

  constructor(onAdd: () => void) {
    this.#onAdd = onAdd;
  }

  /** A request reached a process. */
  request(process: string, target: string): void {
    this.#recorded = [];
    this.#owner = process;
    this.add(process, 'runs', `runs ${target}`);
  }

  /** @param process the one that wrote the entry */
  entry(entry: Entry, process: string): void {
    switch (entry.type) {
      case 'asked':
        this.#ran(process);
        this.#ask(entry.ask);
        this.add(
          process,
          'waits',
          `asks “${this.#questions.get(entry.ask.key)}” and keeps the tool waiting here`,
        );
        break;
      case 'suspended': {
        this.#ran(process);
        const { completions, open } = entry.checkpoint;
        for (const ask of open) this.#ask(ask);
        for (const completion of completions) this.#complete(completion, process);
        const asked = open.map(({ key }) => `“${this.#questions.get(key)}”`).join(' and ');
        this.add(
          process,
          'waits',
          `asks ${asked || 'to be called again'}; the tool is parked in the journal`,
        );
        break;
      }
      case 'claimed':
        for (const answer of entry.answers) this.#complete(answer, process);
        this.#replay(process);
        break;
      case 'completed':
        if (entry.isReceived !== true) this.#ran(process);
        this.#complete(entry.completion, process);
        break;
      case 'ended':
        this.#ran(process);
        this.add(process, 'ended', 'ends the call');
        break;
      default:
    }
  }

  /** What a process logs, or prints. */
  print(process: string, text: string): void {
    for (const line of text.trimEnd().split('\n')) {
      this.#printed += 1;
      if (this.#printed <= MOST_LOGS) this.add(process, 'log', line.slice(0, 500));
      else if (this.#printed === MOST_LOGS + 1) this.add(process, 'log', 'Later lines are not shown.');
    }
  }

  add(process: string, kind: Happening['kind'], text: string): void {
    this.happenings.push({ process, kind, text });
    this.#onAdd();
  }

  /** An owner's entry of another process than before: that has taken the call over. */
  #ran(process: string): void {
    if (this.#owner !== undefined && this.#owner !== process) this.#replay(process);
  }

  #replay(process: string): void {
    this.#owner = process;
    this.add(process, 'runs', 'runs the tool again, from its start');
    for (const text of this.#recorded) this.add(process, 'journal', `${text} (from the journal)`);
  }

  #ask({ key, method, params }: OpenAsk): void {
    this.#questions.set(key, questionOf(method, params));
  }

  #complete(completion: Completion, process: string): void {
    // This package's own: a recorded fetch, a shed.
    if (completion.kind === 'step' && completion.path.startsWith('/')) return;
    const text =
      completion.kind === 'step'
        ? `step ${completion.path}`
        : `answer to “${this.#questions.get(completion.key)}”: ${saidIn(completion.response)}`;
    if (this.#recorded.includes(text)) return;
    this.#recorded.push(text);
    this.add(process, completion.kind, `${text}${completion.kind === 'step' ? ' is done' : ''}`);
  }
}

function saidIn(response: object): string {
  const result: unknown = 'result' in response ? response.result : undefined;
  if (!isObject(result)) return 'an error';
  return isObject(result.content)
    ? JSON.stringify(result.content).slice(0, 200)
    : String(result.action ?? 'given');
}
