/** The differences between columns, each in words for the server's author. */
import type { Column, PlayedStep } from './play.ts';
import { type Leaves, leavesOf, questionsOf, type Sameness } from './same.ts';

/** The kinds of differences. */
export type DifferenceKind =
  /** it completes here and fails elsewhere, or the other way round */
  | 'outcome'
  | 'result'
  | 'error-code'
  | 'ask-missing'
  | 'ask-extra'
  | 'ask-order'
  /** a tool, a prompt or a resource that is listed here alone, or not here */
  | 'listed'
  /** an expectation of the scenario */
  | 'expectation'
  /** run again from its start, a tool does otherwise */
  | 'replay'
  /** one caller gets another one's data */
  | 'leak'
  /** a new version runs other steps than the old one */
  | 'steps'
  /** a call that began on the old version does not end on the new one as on either */
  | 'upgrade'
  /** a call whose process died ends differently from one whose process lives */
  | 'crash'
  /** a tool acts outside of a step, which a replay repeats */
  | 'effect';

/** A difference between revisions, or between versions of a server. */
export interface Difference {
  readonly kind: DifferenceKind;
  /** Index of the step in the scenario. */
  readonly step: number;
  /** The columns in which it is. */
  readonly columns: readonly string[];
  /** A sentence. */
  readonly text: string;
}

/** Compares each column with the majority; of two equal groups the first counts as the majority. */
export function differencesBetween(columns: readonly Column[], same: Sameness): Difference[] {
  const found: Difference[] = [];
  for (const index of columns[0]?.steps.keys() ?? []) {
    const steps = columns.flatMap((column) => {
      const step = column.steps[index];
      return step === undefined ? [] : [{ name: column.name, step }];
    });
    found.push(...inStep(steps, index, same));
  }
  return [...found, ...inRoots(columns)];
}

/** Whether a server asks for roots at all. */
function inRoots(columns: readonly Column[]): Difference[] {
  const asks = ({ messages }: Column): boolean =>
    messages.some(({ kind, label }) => kind === 'ask' && label === 'roots');
  const asking = columns.filter(asks);
  const silent = columns.filter((column) => !asks(column)).map(({ name }) => name);
  if (asking.length === 0 || silent.length === 0) return [];
  const isMost = asking.length >= silent.length;
  const step = Math.max(0, asking[0]?.messages.find(({ label }) => label === 'roots')?.step ?? 0);
  const [kind, own, other] = isMost
    ? (['ask-missing', 'never asks for roots', 'asked'] as const)
    : (['ask-extra', 'asks for roots', 'never asked'] as const);
  return [
    {
      kind,
      step,
      columns: isMost ? silent : asking.map(({ name }) => name),
      text: `${own}; elsewhere they are ${other} for`,
    },
  ];
}

interface Named {
  readonly name: string;
  readonly step: PlayedStep;
}

function inStep(steps: readonly Named[], index: number, same: Sameness): Difference[] {
  const between = (
    keyOf: (step: PlayedStep) => string,
    words: (step: PlayedStep, measure: Named) => Words[],
  ): Difference[] =>
    deviating(grouped(steps, ({ step }) => keyOf(step))).flatMap(({ members, measure }) =>
      members.flatMap(({ name, step }) =>
        words(step, measure).map(([kind, text]) => ({ kind, step: index, columns: [name], text })),
      ),
    );
  const asksOf = (step: PlayedStep): readonly string[] => questionsOf(step, same);
  return [
    ...between(
      (step) => outcomeKey(step, index, same),
      (step, measure) => outcomeDifference(step, measure, index, same),
    ),
    ...between(
      (step) => JSON.stringify(asksOf(step)),
      (step, measure) => askDifferences(asksOf(step), asksOf(measure.step)),
    ),
  ];
}

type Words = readonly [DifferenceKind, string];

/** How one outcome differs from the other columns'. */
export function outcomeDifference(
  step: PlayedStep,
  { step: other, name }: Named,
  index: number,
  same: Sameness,
): Words[] {
  const [mine, theirs] = [step.outcome, other.outcome];
  if (isSame(step, other, index, same)) return [];
  if ('error' in mine && 'error' in theirs) {
    return [
      [
        'error-code',
        `fails with ${mine.error.code} (${short(mine.error.message)}); ${name} with ${theirs.error.code}`,
      ],
    ];
  }
  if ('error' in mine) {
    const { code, message } = mine.error;
    return [['outcome', `fails with ${code} (${short(message)}); on ${name} it completes`]];
  }
  if ('error' in theirs) return [['outcome', `completes; on ${name} it fails with ${theirs.error.code}`]];
  return resultDifferences(leavesOf(step, index, same), leavesOf(other, index, same), name);
}

export function isSame(step: PlayedStep, other: PlayedStep, index: number, same: Sameness): boolean {
  return outcomeKey(step, index, same) === outcomeKey(other, index, same);
}

/** Differences of one result that are worth a line each; the rest is in the page. */
const MOST = 3;
const listedIn = (path: string): string | undefined =>
  /^((?:tools|prompts|resources)\[[^\]]*\])/.exec(path)?.[1];

function resultDifferences(mine: Leaves, theirs: Leaves, name: string): Words[] {
  const found: Words[] = [];
  const listed = (leaves: Leaves): Set<string> =>
    new Set([...leaves.keys()].flatMap((path) => listedIn(path) ?? []));
  const [here, there] = [listed(mine), listed(theirs)];
  for (const item of there)
    if (!here.has(item)) found.push(['listed', `does not list ${item}, which ${name} lists`]);
  for (const item of here)
    if (!there.has(item)) found.push(['listed', `lists ${item}, which ${name} does not`]);
  const isOfOne = (path: string): boolean => {
    const item = listedIn(path);
    return item === undefined || (here.has(item) && there.has(item));
  };
  const paths = [...new Set([...mine.keys(), ...theirs.keys()])].filter(isOfOne);
  const other = paths.filter((path) => mine.get(path) !== theirs.get(path));
  for (const path of other.slice(0, MOST)) {
    const [a, b] = windows(mine.get(path), theirs.get(path));
    found.push(['result', `${path} is ${a}; on ${name} it is ${b}`]);
  }
  if (other.length > MOST)
    found.push(['result', `${other.length - MOST} more members of the result differ from ${name}`]);
  return found;
}

/** How one list of questions differs from the other columns'. */
export function askDifferences(
  mine: readonly string[],
  theirs: readonly string[],
  elsewhere = 'elsewhere',
): Words[] {
  const found: Words[] = [];
  const counts = (asks: readonly string[]): Map<string, number> => {
    const map = new Map<string, number>();
    for (const ask of asks) map.set(ask, (map.get(ask) ?? 0) + 1);
    return map;
  };
  const [here, there] = [counts(mine), counts(theirs)];
  for (const ask of new Set([...theirs, ...mine])) {
    const [own, others] = [here.get(ask) ?? 0, there.get(ask) ?? 0];
    if (own === others) continue;
    const kind = own < others ? 'ask-missing' : 'ask-extra';
    const [asks, asked] =
      own === 0
        ? ['never asks', 'it is asked']
        : others === 0
          ? ['asks', 'it is never asked']
          : ['asks', `${others} times`];
    const often = own > 0 && others > 0 ? ` ${own} times` : '';
    found.push([kind, `${asks} "${short(ask)}"${often}; ${elsewhere} ${asked}`]);
  }
  if (found.length > 0 || mine.join('\0') === theirs.join('\0')) return found;
  return [['ask-order', `asks in another order: ${quoted(mine)}; ${elsewhere} ${quoted(theirs)}`]];
}

export function quoted(asks: readonly string[]): string {
  return asks.length === 0 ? 'nothing' : asks.map((ask) => `"${short(ask)}"`).join(', ');
}

function outcomeKey(step: PlayedStep, index: number, same: Sameness): string {
  return JSON.stringify([...leavesOf(step, index, same)].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function grouped(steps: readonly Named[], keyOf: (step: Named) => string): Named[][] {
  const groups = new Map<string, Named[]>();
  for (const step of steps) {
    const key = keyOf(step);
    groups.set(key, [...(groups.get(key) ?? []), step]);
  }
  return [...groups.values()];
}

/** The groups beside the largest one, with one of that as the measure. */
function deviating(groups: readonly Named[][]): { readonly members: Named[]; readonly measure: Named }[] {
  const most = groups.reduce<Named[]>((best, group) => (group.length > best.length ? group : best), []);
  const [measure] = most;
  if (measure === undefined) return [];
  return groups.filter((group) => group !== most).map((members) => ({ members, measure }));
}

/** One line for the same difference in several columns. */
export function gathered(differences: readonly Difference[]): Difference[] {
  const lines = new Map<string, Difference>();
  for (const difference of differences) {
    const key = JSON.stringify([difference.kind, difference.step, difference.text]);
    const columns = [...(lines.get(key)?.columns ?? []), ...difference.columns];
    lines.set(key, { ...difference, columns: [...new Set(columns)] });
  }
  return [...lines.values()].sort((a, b) => a.step - b.step);
}

export function short(text: string, most = 80): string {
  const line = text.replaceAll(/\s+/g, ' ');
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** Two texts around the place where they part. */
function windows(mine: string | undefined, theirs: string | undefined): [string, string] {
  if (mine === undefined || theirs === undefined) return [shown(mine), shown(theirs)];
  let at = 0;
  while (at < mine.length && mine[at] === theirs[at]) at += 1;
  const from = at < 40 ? 0 : at - 20;
  const window = (text: string): string => JSON.stringify(`${from > 0 ? '…' : ''}${short(text.slice(from))}`);
  return [window(mine), window(theirs)];
}

function shown(text: string | undefined): string {
  return text === undefined ? 'absent' : JSON.stringify(short(text));
}
