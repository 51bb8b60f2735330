/** A comparison for people: a row a step, a column a revision, and every difference named below. */
import { counted } from '../base/values.ts';
import type { Comparison } from './compare.ts';
import type { Difference, DifferenceKind } from './differences.ts';
import { short } from './differences.ts';
import { notCalled, UNSEEN } from './notes.ts';
import type { PlayedStep } from './play.ts';

export interface TableOptions {
  /** Characters of a line; further columns go into a further table. Default 100. */
  readonly width?: number;
  readonly color?: boolean;
  /** The line of a step in the scenario's file. */
  readonly lineOf?: (step: number) => number | undefined;
}

/** How the name of a column ends that others are compared with. */
export const UNDISTURBED = ' undisturbed';

const STEP_WIDTH = 26;
const CELL_WIDTH = 12;

/** Kinds that a cell has no room for. */
const MARKS: Partial<Readonly<Record<DifferenceKind, string>>> = {
  'error-code': 'code',
  'ask-missing': 'asks',
  'ask-extra': 'asks',
  'ask-order': 'order',
  expectation: 'expected',
};

/**
 * A comparison as text: a row for each step, a column for each revision, and a sentence for each difference.
 *
 * @example
 * import { everyRevision, tableOf } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * console.log(tableOf(await everyRevision(buildServer, { steps: [{ call: 'greet' }] })));
 */
export function tableOf(comparison: Comparison, options: TableOptions = {}): string {
  const { columns } = comparison;
  const perTable = Math.max(1, Math.floor(((options.width ?? 100) - STEP_WIDTH) / (CELL_WIDTH + 1)));
  const tables: string[] = [];
  for (let from = 0; from < columns.length; from += perTable) {
    tables.push(oneTable(comparison, from, from + perTable, options));
  }
  const lines = findings(comparison, options);
  const parts = [
    ...tables,
    lines.join('\n') || agreement(comparison),
    ...notCalled(comparison.uncalled),
    UNSEEN,
  ];
  return `${parts.join('\n\n')}\n`;
}

/** A comparison that failed, as text: the sentence that decides first, then all of them, and the table. */
export function failureOf(comparison: Comparison): string {
  const [first = '', ...more] = findings(comparison, {});
  const head = `${first}${more.length === 0 ? '' : `\n(and ${more.length} more, below)`}`;
  return `${head}\n\n${tableOf(comparison)}`;
}

function oneTable(
  { columns, differences, problems }: Comparison,
  from: number,
  to: number,
  { color }: TableOptions,
): string {
  const shown = columns.slice(from, to);
  const rule = '─'.repeat(STEP_WIDTH + shown.length * (CELL_WIDTH + 1));
  const rows = [
    row(
      ['step'],
      shown.map(({ name }) => wrapped(name, CELL_WIDTH)),
    ),
  ];
  for (const [index, { title }] of (shown[0]?.steps ?? []).entries()) {
    const cells = shown.map(({ name, revision, steps }) => {
      const own = differences.filter(
        (one) =>
          one.step === index &&
          (one.columns.includes(name) || (name === revision && one.columns.includes(revision))),
      );
      return cellOf(
        steps[index],
        own,
        problems.some(({ step }) => step === index),
        color ?? false,
      );
    });
    rows.push(rule, row(wrapped(`${index + 1} ${short(title, 90)}`, STEP_WIDTH - 1), cells));
  }
  return rows.join('\n');
}

function cellOf(
  step: PlayedStep | undefined,
  differences: readonly Difference[],
  isWrong: boolean,
  color: boolean,
): string[] {
  if (step === undefined) return ['not played'];
  const [first] = differences;
  const { outcome, roundTrips, bytes, time } = step;
  const fine = isWrong ? '✗ mistake' : 'error' in outcome ? `= error ${outcome.error.code}` : '= same';
  const mark = (first === undefined ? fine : `≠ ${MARKS[first.kind] ?? first.kind}`)
    .slice(0, CELL_WIDTH)
    .padEnd(CELL_WIDTH);
  return [
    color && (first !== undefined || isWrong) ? `\u001b[31m${mark}\u001b[39m` : mark,
    counted(roundTrips, 'trip'),
    bytes < 1_000 ? `${bytes} B` : `${(bytes / 1_000).toFixed(1)} kB`,
    `${time} ms`,
  ];
}

function findings({ columns, differences, problems }: Comparison, { color, lineOf }: TableOptions): string[] {
  const titleAt = (step: number): string => {
    const line = lineOf?.(step);
    const title = short(columns[0]?.steps[step]?.title ?? '', 60);
    return `step ${step + 1}${line === undefined ? '' : `, line ${line}`} (${title})`;
  };
  const red = (text: string): string => (color ? `\u001b[31m${text}\u001b[39m` : text);
  return [
    ...problems.map(({ step, text }) => `${red('✗')} ${titleAt(step)}: ${text}`),
    ...differences.map(
      (one) =>
        `${red('≠')} ${titleAt(one.step)}, ${one.columns.length === columns.length && columns.length > 1 ? 'on every revision' : `on ${one.columns.join(', ')}`}: ${one.text}`,
    ),
  ];
}

/** How many columns were compared with others, or with themselves, played in another way. */
function agreement({ columns }: Comparison): string {
  const what = 'the same results, the same questions, in the same order';
  const measures = columns.filter(({ name }) => name.endsWith(UNDISTURBED)).length;
  const count = columns.length - measures;
  const others =
    measures > 0
      ? ' with a process that lives'
      : count === 1
        ? ' with itself, replayed and in one process'
        : '';
  return `${count === 1 ? '1 column agrees' : `All ${count} columns agree`}${others}: ${what}.`;
}

function row(first: readonly string[], cells: readonly (readonly string[])[]): string {
  const height = Math.max(first.length, ...cells.map((lines) => lines.length));
  return Array.from({ length: height }, (_, line) =>
    [
      padded(first[line] ?? '', STEP_WIDTH),
      ...cells.map((lines) => padded(lines[line] ?? '', CELL_WIDTH + 1)),
    ]
      .join('')
      .trimEnd(),
  ).join('\n');
}

/** Colours take no room. */
function padded(text: string, width: number): string {
  const seen = text.replaceAll('\u001b[31m', '').replaceAll('\u001b[39m', '').length;
  return text + ' '.repeat(Math.max(0, width - seen));
}

function wrapped(text: string, width: number): string[] {
  const lines = [''];
  for (const part of text.split(/(?<=[\s-])/)) {
    const last = lines.at(-1) ?? '';
    if (last !== '' && (last + part).trimEnd().length > width) lines.push(part);
    else lines[lines.length - 1] = last + part;
  }
  return lines.flatMap((line) => line.match(new RegExp(`.{1,${width}}`, 'gu')) ?? ['']);
}
