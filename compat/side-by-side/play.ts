/** Plays a scenario once, over one wire, and records the outcome of each step. */
import { isObject, type JsonObject } from '../../src/base/json.ts';
import type { Revision } from '../revisions.ts';
import { type Identity, speakerOf } from './clients.ts';
import { type Ask, DEFAULT_CAPABILITIES, requestOf, type Scenario, titleOf } from './scenario.ts';
import type { LogLine } from './site.ts';
import type { Stage } from './stage.ts';
import { type PlayedAsk, type User, type UserOptions, userOf } from './user.ts';
import type { Wire, WireMessage } from './wire.ts';

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
  /** Names of the server's steps that completed, in order. */
  readonly ran: readonly string[];
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
}

export interface Performance {
  readonly name: string;
  readonly revision: Revision;
  readonly scenario: Scenario;
  readonly wire: Wire;
  readonly stage: Stage;
  readonly token?: string;
  readonly accent?: UserOptions['accent'];
  readonly by?: UserOptions['by'];
  /** Before each step, and before each answer of its user (`nth` counts from 1). */
  readonly beforeStep?: (step: number) => Promise<void>;
  readonly beforeAnswer?: (step: number, nth: number) => Promise<void>;
  readonly onStep?: (step: number) => void;
}

/** Milliseconds that one step may take. */
const PATIENCE = 20_000;

export async function play(performance: Performance): Promise<Column> {
  const { name, revision, scenario, wire, stage, onStep } = performance;
  const { client, open } = speakerOf(revision);
  const steps: PlayedStep[] = [];
  let user: User | undefined;
  const onAsk = async (method: string, params: JsonObject): Promise<JsonObject> => {
    // Servers may ask before they are called.
    user ??= userOf(scenario, {}, { by: performance.by });
    return user.reply(method, params);
  };
  await performance.beforeStep?.(0);
  const player = await open(wire.url, identityOf(performance), onAsk).catch((error: unknown) => {
    throw stage.refused(revision, error);
  });
  stage.store.takeSteps();
  try {
    for (const [index, step] of scenario.steps.entries()) {
      if (index > 0) await performance.beforeStep?.(index);
      onStep?.(index);
      const { accent, beforeAnswer, by } = performance;
      user = userOf(scenario, step, {
        accent,
        by,
        beforeAnswer: beforeAnswer && ((nth) => beforeAnswer(index, nth)),
      });
      wire.step = index;
      const before = { posts: wire.posts, bytes: wire.bytes, lines: stage.lines.length, at: Date.now() };
      const { method, params } = requestOf(step);
      const outcome = await outcomeOf(() => player.request(method, params, scenario.timeout ?? PATIENCE));
      steps.push({
        title: titleOf(step),
        outcome,
        asks: [...user.asks],
        unanswered: [...user.unanswered],
        ran: stage.store.takeSteps(),
        reworded: stage.store.takeReworded(),
        roundTrips: wire.posts - before.posts,
        bytes: wire.bytes - before.bytes,
        time: Date.now() - before.at,
        log: stage.lines.slice(before.lines),
      });
    }
  } finally {
    await player.close().catch(() => {});
  }
  return { name, revision, client, steps, messages: wire.messages };
}

function identityOf({ scenario, token }: Performance): Identity {
  const capabilities = scenario.client?.capabilities ?? DEFAULT_CAPABILITIES;
  return { name: 'side-by-side', capabilities, ...(token !== undefined && { token }) };
}

async function outcomeOf(request: () => Promise<JsonObject>): Promise<Outcome> {
  try {
    return { result: await request() };
  } catch (error) {
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
