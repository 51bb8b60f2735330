/** Reads arguments by the table of flags, and writes `--help` out of it. */
import { parseArgs } from 'node:util';
import { AwaitError } from '../base/error.ts';
import { type Draft, FLAGS, type Flag, newDraft, withEnvironment } from './flags.ts';

type FlagTable = Readonly<Record<string, readonly Flag[]>>;

/** Column where the description of a flag begins, and where it ends. */
const INDENT = 28;
const WIDTH = 100;

export interface Arguments extends Draft {
  readonly positionals: readonly string[];
}

/** @throws AwaitError `bad-option`; the message says what to write instead */
export async function readArguments(args: readonly string[], table: FlagTable = FLAGS): Promise<Arguments> {
  const flags = Object.values(table).flat();
  const { values, positionals } = parsed(args, flags);
  const draft = newDraft();
  for (const flag of flags) {
    const given = values[flag.name];
    if (given === undefined) continue;
    await flag.set(draft, Array.isArray(given) ? given.map(String) : [String(given)]);
  }
  withEnvironment(draft);
  return { ...draft, positionals };
}

function parsed(args: readonly string[], flags: readonly Flag[]): ReturnType<typeof parseArgs> {
  const options = Object.fromEntries(
    flags.map(({ name, value, repeats }) => [
      name,
      { type: value === undefined ? ('boolean' as const) : ('string' as const), multiple: repeats === true },
    ]),
  );
  try {
    return parseArgs({ args: [...args], allowPositionals: true, options });
  } catch (error) {
    throw new AwaitError('bad-option', error instanceof Error ? error.message : String(error), error);
  }
}

/** The text of `--help` for all flags of a table. */
export function helpOfFlags(table: FlagTable = FLAGS): string {
  const sections = Object.entries(table).map(
    ([title, flags]) => `${title}:\n${flags.map(helpOf).join('\n')}\n`,
  );
  return sections.join('\n');
}

function helpOf({ name, value, help, repeats }: Flag): string {
  const head = `  --${name}${value === undefined ? '' : ` ${value}`}`;
  const words = `${help}${repeats ? '; repeatable' : ''}`.split(' ');
  const lines: string[] = [];
  for (const word of words) {
    const line = lines.at(-1);
    if (line === undefined || line.length + word.length + 1 > WIDTH - INDENT) lines.push(word);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  const [first = '', ...rest] = lines;
  const begin = head.length < INDENT ? head.padEnd(INDENT) : `${head}\n${' '.repeat(INDENT)}`;
  return [`${begin}${first}`, ...rest.map((line) => `${' '.repeat(INDENT)}${line}`)].join('\n');
}
