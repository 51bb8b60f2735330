/** Differences between a tool that is run again from its start and one whose frame is kept. */
import { askDifferences, type Difference, outcomeDifference, quoted, short } from './differences.ts';
import type { Column, PlayedStep } from './play.ts';
import { questionsOf, type Sameness } from './same.ts';
import type { LogLine } from './site.ts';

const WHY =
  'What it asks hangs on something that is not the same each time: a variable outside of the tool, a clock, chance. Put that into step(), or give each ask a key.';

export interface Plays {
  /** Its calls were run again after each answer. */
  readonly replayed: Column;
  /** Their frames waited in one process: twice, one after the other. */
  readonly kept: readonly Column[];
}

export function replayDifferences({ replayed, kept }: Plays, same: Sameness): Difference[] {
  return replayed.steps.flatMap((step, index): Difference[] => {
    const live = kept.flatMap(({ steps }) => steps[index] ?? []);
    const text = differenceOf(step, live, index, same);
    return text === undefined ? [] : [{ kind: 'replay', step: index, columns: [replayed.name], text }];
  });
}

function differenceOf(
  step: PlayedStep,
  kept: readonly PlayedStep[],
  index: number,
  same: Sameness,
): string | undefined {
  const [live, liveAgain] = kept;
  if (live === undefined) return undefined;
  const [asked, askedLive] = [questionsOf(step, same), questionsOf(live, same)];
  const askedAgain = liveAgain === undefined ? askedLive : questionsOf(liveAgain, same);
  if (!equal(askedLive, askedAgain)) {
    return `asks otherwise each time it is run: ${quoted(askedLive)}, and then ${quoted(askedAgain)}; so it may ask in another order on replay. ${WHY}`;
  }
  if (!equal(asked, askedLive)) {
    const [, first] = askDifferences(asked, askedLive, 'in one go')[0] ?? [];
    return `asks in another order on replay: in one go ${quoted(askedLive)}; run again ${quoted(asked)} (it ${first}). ${WHY}`;
  }
  const broken = brokenBy(step.log);
  if (broken !== undefined) return `cannot be run again: ${broken}. ${WHY}`;
  if (step.reworded.length > 0) {
    return `asks ${quoted(step.reworded)} on replay, where it had asked something else before. ${WHY}`;
  }
  const [, text] =
    outcomeDifference(step, { name: 'one process that keeps its frame', step: live }, index, same)[0] ?? [];
  return text && `comes to something else when run again from its start: ${text}.`;
}

function equal(asks: readonly string[], others: readonly string[]): boolean {
  return asks.join('\0') === others.join('\0');
}

/** The logged reason why a call could not be resumed. */
export function brokenBy(log: readonly LogLine[]): string | undefined {
  const line = log.find(({ detail }) => detail.code === 'divergence' || detail.code === 'question-drift');
  return line && short(line.message.replace(/of call \S+ \(format \d+\) /, ''), 400);
}
