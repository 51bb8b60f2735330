/** The shape of a scenario, in TypeScript and in files. */
import type { JsonObject } from '../base/values.ts';

/** A client's requests, in order, and its user's answers: the same under every revision. */
export interface Scenario {
  readonly name?: string | undefined;
  readonly client?: ScenarioClient | undefined;
  /** Milliseconds that one step may take, its answers included. Default 20,000. */
  readonly timeout?: number | undefined;
  /** Regular expressions; texts that they match are not compared. Ids, times and tokens never are. */
  readonly ignore?: readonly string[] | undefined;
  readonly steps: readonly Step[];
}

interface ScenarioClient {
  /** Default: forms, URLs, sampling and roots. */
  readonly capabilities?: JsonObject | undefined;
  /** URIs that `roots/list` is answered with. Default one. */
  readonly roots?: readonly string[] | undefined;
}

/** One request of a scenario. */
export type Step = CallStep | PromptStep | ReadStep | ListStep;

interface AskingStep {
  /**
   * The user's answers. Without them, every form is filled in from its schema. With them, an ask without an answer is a
   * mistake of the scenario.
   */
  readonly answers?: readonly Answer[] | Answering | undefined;
  readonly expect?: Expectation | undefined;
}

/** Calls a tool. */
interface CallStep extends AskingStep {
  readonly call: string;
  readonly with?: JsonObject | undefined;
}

/** Gets a prompt. */
interface PromptStep extends AskingStep {
  readonly prompt: string;
  readonly with?: Readonly<Record<string, string>> | undefined;
}

/** Reads a resource by its URI. */
interface ReadStep extends AskingStep {
  readonly read: string;
}

/** Lists the server's tools, prompts or resources. */
interface ListStep {
  readonly list: 'tools' | 'prompts' | 'resources';
}

/** One of `accept`, `decline`, `cancel`, `sample`. */
export interface Answer {
  /** A part of the question that it answers. Default: the next question that has the fields it fills in. */
  readonly to?: string | undefined;
  /** The content of a form; `true` for a URL that the user opened. */
  readonly accept?: JsonObject | true | undefined;
  readonly decline?: true | undefined;
  readonly cancel?: true | undefined;
  /** The text of a sampled message. */
  readonly sample?: string | undefined;
}

/** A user in code, for scenarios in TypeScript. `undefined` is a question that the scenario has no answer for. */
export type Answering = (ask: Ask) => Answer | undefined;

/** An ask, which a server makes in the middle of a request. */
export interface Ask {
  readonly method: string;
  /** The message of a form or URL, the prompt of a sampling, or `roots`. */
  readonly question: string;
  readonly params: JsonObject;
}

/** Conditions on the outcome, under every revision. */
export interface Expectation {
  /** A part of the result's text. */
  readonly text?: string | undefined;
  /** The code of a JSON-RPC error. */
  readonly error?: number | undefined;
  /** The questions, in order, each by a part of it. */
  readonly asks?: readonly string[] | undefined;
  /** Whether the result says that the tool failed. By default that is a mistake. */
  readonly isError?: boolean | undefined;
  /** `allowed`: what it does outside of steps may happen again. By default that is a difference. */
  readonly effects?: 'allowed' | undefined;
}

export const DEFAULT_CAPABILITIES: JsonObject = {
  elicitation: { form: {}, url: {} },
  sampling: {},
  roots: {},
};

/** The step in a few words: `book_flight {"to":"Rome"}`. */
export function titleOf(step: Step): string {
  if ('list' in step) return `list ${step.list}`;
  if ('read' in step) return `read ${step.read}`;
  const name = 'call' in step ? step.call : `prompt ${step.prompt}`;
  return step.with === undefined ? name : `${name} ${JSON.stringify(step.with)}`;
}

/** The request of a step, which is the same on every revision. */
export function requestOf(step: Step): { readonly method: string; readonly params: JsonObject } {
  if ('list' in step) return { method: `${step.list}/list`, params: {} };
  if ('read' in step) return { method: 'resources/read', params: { uri: step.read } };
  if ('prompt' in step) {
    return { method: 'prompts/get', params: { name: step.prompt, arguments: step.with ?? {} } };
  }
  return { method: 'tools/call', params: { name: step.call, arguments: step.with ?? {} } };
}
