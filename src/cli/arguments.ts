/** Reads arguments by the table of flags, names what a wrong one may have meant, and writes `--help`. */
import { parseArgs } from 'node:util';
import { optionError, reasonOf } from '../base/values.ts';
import { type Draft, FLAGS, type Flag, newDraft, withEnvironment } from './flags.ts';

type FlagTable = Readonly<Record<string, readonly Flag[]>>;

/** Column where the description of a flag begins, and where it ends. */
const INDENT = 28;
const WIDTH = 100;

export interface Arguments extends Draft {
  readonly positionals: readonly string[];
}

/**
 * @param command whose `help` lists the flags
 * @throws AwaitError `bad-option`; the message says what to write instead
 */
export async function readArguments(
  args: readonly string[],
  table: FlagTable = FLAGS,
  command = 'serve',
): Promise<Arguments> {
  const flags = Object.values(table).flat();
  const { values, positionals } = parsed(args, flags, command);
  const draft = newDraft();
  for (const flag of flags) {
    const given = values[flag.name];
    if (given === undefined) continue;
    await flag.set(draft, Array.isArray(given) ? given.map(String) : [String(given)]);
  }
  withEnvironment(draft);
  return { ...draft, positionals };
}

/**
 * Arguments of a command whose options are the rows of its usage: `  --name VALUE  what it does`, with `repeatable` where
 * it may be given several times.
 * @throws AwaitError `bad-option`
 */
export function argumentsBy<Values>(
  usage: string,
  args: readonly string[],
  command: string,
): { readonly values: Values; readonly positionals: string[] } {
  const rows = [...usage.matchAll(/^ {2}--([\w-]+)( [A-Z]+)?.*/gm)];
  const options = rows.map(([row, name = '', value]) => ({ name, value, repeats: /repeatable/.test(row) }));
  const { values, positionals } = parsed(args, options, command);
  return { values: values as Values, positionals };
}

interface Option {
  readonly name: string;
  /** How its value is called; undefined where it has none. */
  readonly value?: string | undefined;
  readonly repeats?: boolean;
}

/** @throws AwaitError `bad-option`: the errors of `parseArgs`, as sentences for people */
function parsed(args: readonly string[], given: readonly Option[], command: string) {
  const options = Object.fromEntries(
    given.map(({ name, value, repeats = false }) => [
      name,
      { type: value === undefined ? ('boolean' as const) : ('string' as const), multiple: repeats },
    ]),
  );
  try {
    return parseArgs({ args: [...args], allowPositionals: true, options });
  } catch (error) {
    const text = reasonOf(error);
    const [, name] = /^Unknown option '-{1,2}([^']*)'/.exec(text) ?? [];
    if (name === undefined) throw optionError(text, error);
    const hint = meant(name, Object.keys(options), '--') ?? `mcp-await help ${command} lists them`;
    throw optionError(`there is no option --${name}; ${hint}`, error);
  }
}

/** `did you mean …?`, where one of the names is close. */
export function meant(word: string, names: readonly string[], prefix = ''): string | undefined {
  const name = nearest(word, names);
  return name && `did you mean ${prefix}${name}?`;
}

/** Most edits between a word and the name that was meant. */
const MOST_EDITS = 4;

/** The name that differs least from the word, in at most a third of its characters. */
export function nearest(word: string, names: readonly string[]): string | undefined {
  for (let edits = 0; edits <= MOST_EDITS; edits += 1) {
    const found = names.find(
      (name) => edits <= Math.max(name.length, word.length) / 3 && isNear(word, name, edits),
    );
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether so many characters that are inserted, deleted, replaced, or swapped with the next make one word of the other. */
function isNear(from: string, to: string, edits: number): boolean {
  if (edits < 0 || Math.abs(from.length - to.length) > edits) return false;
  if (from === to) return true;
  const rest = (taken: number, given: number, left = edits - 1): boolean =>
    isNear(from.slice(taken), to.slice(given), left);
  if (from[0] === to[0]) return rest(1, 1, edits);
  const isSwapped = from[0] === to[1] && from[1] === to[0];
  return rest(1, 1) || rest(1, 0) || rest(0, 1) || (isSwapped && rest(2, 2));
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
