/** Plays a scenario once, over one wire, and records the outcome of each step. */

import type { Revision } from '../../compat/revisions.ts';
import { AwaitError, defined, isObject, type JsonObject, optionError } from '../base/values.ts';
import { speakerOf } from './clients.ts';
import { type Ask, DEFAULT_CAPABILITIES, requestOf, type Scenario, titleOf } from './scenario.ts';
import type { LogLine } from './site.ts';
import type { SeenEffect, Stage } from './stage.ts';
import { type PlayedAsk, type User, type UserOptions, userOf } from './user.ts';
import type { PlayWire, WireMessage } from './wire.ts';

/** The response to a step: a result or an error. */
export type Outcome =
  | { readonly result: JsonObject }
  | { readonly error: { readonly code: number | string; readonly message: string } };

/** A step that was played: its outcome, its asks, the steps that the tool ran. */
export interface PlayedStep {
  readonly title: string;
  readonly outcome: Outcome;
  readonly asks: readonly PlayedAsk[];
  /** Questions that the scenario has no answer for. */
  readonly unanswered: readonly Ask[];
  /** Places of answers in the scenario that no question took, from 1. */
  readonly unused: readonly number[];
  /** Names of the server's steps that completed, in order. */
  readonly ran: readonly string[];
  /** What its calls did outside of steps. */
  readonly effects: readonly SeenEffect[];
  /** Questions that a tool asked, run again, where it had asked others before. */
  readonly reworded: readonly string[];
  /** POSTs that it took. */
  readonly roundTrips: number;
  readonly bytes: number;
  /** Milliseconds. */
  readonly time: number;
  /** The warnings and errors in the log of the server's processes. */
  readonly log: readonly LogLine[];
}

/** One column of a comparison. */
export interface Column {
  readonly name: string;
  readonly revision: Revision;
  readonly client: string;
  readonly steps: readonly PlayedStep[];
  readonly messages: readonly WireMessage[];
  /** Names of the server's tools at the end, where a call failed: the tool may be misspelt. */
  readonly tools?: readonly string[];
}

export interface Performance {
  readonly name: string;
  readonly revision: Revision;
  readonly scenario: Scenario;
  readonly wire: PlayWire;
  readonly stage: Stage;
  readonly token?: string;
  readonly accent?: UserOptions['accent'];
  readonly by?: UserOptions['by'];
  /** Before each step, and before each answer of its user (`nth` counts from 1). */
  readonly beforeStep?: (step: number) => Promise<void>;
  readonly beforeAnswer?: (step: number, nth: number) => Promise<void>;
  readonly afterStep?: () => Promise<void>;
  readonly onStep?: (step: number) => void;
}

/** Milliseconds that one step may take. */
export const PATIENCE = 20_000;
export async function play(performed: Performance): Promise<Column> {
  const { name, revision, scenario, wire, stage, onStep } = performed;
  const { client, open } = speakerOf(revision);
  const steps: PlayedStep[] = [];
  let user: User | undefined;
  const onAsk = async (method: string, params: JsonObject): Promise<JsonObject> => {
    // Servers may ask before they are called.
    user ??= userOf(scenario, {}, { by: performed.by });
    return user.reply(method, params);
  };
  await performed.beforeStep?.(0);
  wire.isLost = () => stage.isLost;
  const caller = {
    name: 'side-by-side',
    capabilities: scenario.client?.capabilities ?? DEFAULT_CAPABILITIES,
    ...defined({ token: performed.token }),
  };
  const player = await stage.connected(revision, open(wire.url, caller, onAsk));
  let tools: readonly string[] | undefined;
  stage.store.takeSteps();
  stage.takeEffects();
  try {
    for (const [index, step] of scenario.steps.entries()) {
      if (index > 0) await performed.beforeStep?.(index);
      onStep?.(index);
      const { accent, beforeAnswer, by } = performed;
      user = userOf(scenario, step, {
        accent,
        by,
        beforeAnswer: beforeAnswer && ((nth) => beforeAnswer(index, nth)),
      });
      wire.step = index;
      const before = { posts: wire.posts, bytes: wire.bytes, lines: stage.lines.length, at: Date.now() };
      const { method, params } = requestOf(step);
      const patience = scenario.timeout ?? PATIENCE;
      const played = outcomeOf(() => player.request(method, params, patience), patience);
      const alive = played.then(async (outcome) => {
        // A process that something blocks would not end, either.
        if ('error' in outcome && outcome.error.code === TOO_LONG) await stage.answers();
        return outcome;
      });
      const outcome = await Promise.race([alive, stage.failed]).catch((error: unknown) => {
        throw optionError(
          `step ${index + 1} (${titleOf(step)}), on ${revision}: ${AwaitError.from(error).message}`,
          error,
        );
      });
      steps.push({
        title: titleOf(step),
        outcome,
        asks: [...user.asks],
        unanswered: [...user.unanswered],
        unused: user.unused,
        ran: stage.store.takeSteps(),
        effects: stage.takeEffects(),
        reworded: stage.store.takeReworded(),
        roundTrips: wire.posts - before.posts,
        bytes: wire.bytes - before.bytes,
        time: Date.now() - before.at,
        log: stage.lines.slice(before.lines),
      });
      await performed.afterStep?.();
    }
    if (scenario.steps.some((step, index) => 'call' in step && isFailed(steps[index]))) {
      const count = wire.messages.length;
      const list = await player.request('tools/list', {}, PATIENCE).catch((): JsonObject => ({}));
      wire.messages.length = count;
      if (Array.isArray(list.tools)) tools = list.tools.filter(isObject).map((tool) => String(tool.name));
    }
  } finally {
    await player.close().catch(() => {});
  }
  return { name, revision, client, steps, messages: wire.messages, ...defined({ tools }) };
}

/** Whether a step ended with an error, or with a result that says so. */
export function isFailed(step: PlayedStep | undefined): boolean {
  return step !== undefined && ('error' in step.outcome || step.outcome.result.isError === true);
}

/** The code of a step that took too long, which each client calls otherwise. */
export const TOO_LONG = 'timeout';

async function outcomeOf(request: () => Promise<JsonObject>, patience: number): Promise<Outcome> {
  const began = performance.now();
  try {
    return { result: await request() };
  } catch (error) {
    // Timers may fire a millisecond early.
    if (performance.now() - began > patience - 2)
      return { error: { code: TOO_LONG, message: `no outcome after ${patience} ms` } };
    const { code, message } =
      isObject(error) || error instanceof Error ? (error as { code?: unknown; message?: unknown }) : {};
    return {
      error: {
        code: typeof code === 'number' || typeof code === 'string' ? code : 'client',
        // SDK v1 puts the code in front of the message.
        message: String(message ?? error).replace(/^MCP error -?\d+: /, ''),
      },
    };
  }
}

/** The text of a result, as its user reads it; of an error, its code and message. */
export function textOf({ outcome }: PlayedStep): string {
  if ('error' in outcome) return `error ${outcome.error.code}: ${outcome.error.message}`;
  const { result } = outcome;
  for (const list of ['tools', 'prompts', 'resources']) {
    const items: unknown = result[list];
    if (Array.isArray(items))
      return items.map((item: { name?: unknown }) => String(item.name)).join(', ') || `no ${list}`;
  }
  const items = [result.content, result.messages, result.contents].find(Array.isArray) ?? [];
  const texts = items.map((item: { text?: unknown; type?: unknown; content?: { text?: unknown } }) =>
    String(item.text ?? item.content?.text ?? item.type ?? ''),
  );
  return `${result.isError === true ? 'error: ' : ''}${texts.join('\n')}`;
}
