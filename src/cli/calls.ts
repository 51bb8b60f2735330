/** `mcp-await calls`: lists, shows and ends the calls in a store, for its operator, beside running servers. */
import { existsSync } from 'node:fs';
import { type AwaitError, badToken, counted, optionError, systemClock } from '../base/values.ts';
import type { Entry } from '../call/journal/entries.ts';
import { CallBook, type Story, unopened } from '../checkpoint/call-book.ts';
import { KeyvCallStore } from '../checkpoint/call-store.ts';
import { KeyRing } from '../checkpoint/key-ring.ts';
import { Names } from '../checkpoint/names.ts';
import { openStore } from '../checkpoint/open-store.ts';
import { eitherRecords } from '../checkpoint/records.ts';
import { Sealer } from '../checkpoint/sealed.ts';
import { sqliteFile } from '../checkpoint/unreachable.ts';
import { Retry } from '../log/retry.ts';
import { escaped, shortText } from '../observe/redact.ts';
import { argumentsBy, meant } from './arguments.ts';
import { secretsFrom } from './flags.ts';

export const CALLS_USAGE = `  mcp-await calls list [options]           the calls in a store, the oldest first, and how many wait
  mcp-await calls show <call> [options]    what happened in one
  mcp-await calls expire <call> [options]  ends it, and deletes what it wrote

  <call>                    as list shows it, or its beginning
  --store URL               the servers' store; with the same secrets and audience as theirs:
  --secret-file PATH        or MCP_AWAIT_SECRET, or
  --secret VALUE            which others can read in the list of processes; repeatable
  --audience NAME           default mcp-await
  --caller NAME             only this caller's, as principal names them
  --answers                 show what was answered, and arguments and results
  --json                    a line of JSON for each call, or entry
`;

type CallsFlags = {
  readonly [Name in 'store' | 'secret-file' | 'audience' | 'caller']?: string;
} & { readonly [Name in 'answers' | 'json']?: true } & { readonly secret?: readonly string[] };

const VERBS = ['list', 'show', 'expire'];
/** Characters of a call's label in the table: enough for `show`, which takes its beginning. */
const SHORT = 12;

type ShownCall = Pick<CallsFlags, 'json' | 'answers'>;

export async function calls(args: readonly string[]): Promise<void> {
  // Whoever reads the list may stop reading it: `| head`.
  process.stdout.on('error', () => process.exit(0));
  const { values, positionals } = argumentsBy<CallsFlags>(CALLS_USAGE, args, 'calls');
  const [verb = 'list', label, ...more] = positionals;
  if (!VERBS.includes(verb))
    throw wrong(`has no ${verb}; ${meant(verb, VERBS) ?? `there are ${VERBS.join(', ')}`}`);
  if (values.store === undefined) throw wrong('needs --store URL, that of the servers');
  if (more.length > 0) throw wrong(`takes one call, not ${more.length + 1}`);
  const secrets = secretsFrom(values.secret ?? [], values['secret-file']);
  if (secrets === undefined) throw wrong('needs the servers’ secrets: MCP_AWAIT_SECRET or --secret-file');
  // Opening would create it.
  const isSqlite = values.store.startsWith('sqlite:');
  if (isSqlite && !existsSync(sqliteFile(values.store)))
    throw optionError(`there is no file ${sqliteFile(values.store)}`);
  const keyv = await openStore(values.store);
  const book = bookOf(keyv, secrets, values.audience ?? 'mcp-await');
  try {
    switch (verb) {
      case 'list':
        return await list(book, values.caller, values);
      case 'show':
        return show(await book.find(named(label)), values);
      default: {
        const story = await book.find(named(label));
        await book.erase(story);
        return write(
          values.json ? JSON.stringify({ erased: story.label }) : `${story.label} is over, and erased`,
        );
      }
    }
  } finally {
    await keyv.disconnect();
  }
}

function bookOf(
  keyv: Awaited<ReturnType<typeof openStore>>,
  secrets: readonly string[],
  audience: string,
): CallBook {
  const ring = new KeyRing(secrets);
  const names = new Names(audience, ring);
  const sealer = new Sealer({ ring, audience, maxLength: Infinity, now: Date.now });
  // A lease is the owner's affair: nothing is run here.
  const store = new KeyvCallStore(keyv, systemClock, 10_000, {
    names,
    cipher: eitherRecords(audience, ring, sealer),
    // Its operator waits for it: three seconds.
    retry: new Retry({ clock: systemClock, lease: 1_000 }),
  });
  return new CallBook(store, names, systemClock);
}

/** @throws AwaitError `bad-token` once the others are listed, if there are calls that it cannot open */
async function list(book: CallBook, caller: string | undefined, { json }: ShownCall): Promise<void> {
  const rows: CallRow[] = [];
  const refusals: unknown[] = [];
  for await (const story of book.stories(caller, (error) => refusals.push(error))) rows.push(rowOf(story));
  rows.sort((a, b) => a.created.localeCompare(b.created));
  if (json) for (const row of rows) write(JSON.stringify(row));
  else {
    if (rows.length > 0) write(tableOf(rows, SHORT));
    const waiting = rows.filter(({ status }) => status === 'waiting').length;
    write(`${counted(rows.length, 'call')}, ${waiting} of them waiting for their caller`);
  }
  const [why] = unopened(refusals);
  if (why !== undefined) throw badToken(why);
}

type CallRow = ReturnType<typeof rowOf>;

function rowOf(story: Story) {
  const { label, call, status, isTask, folded } = story;
  const asked = status === 'waiting' ? askedAt(story) : undefined;
  return {
    call: label,
    status,
    isTask,
    method: call.method,
    target: String(call.params.name ?? call.params.uri ?? ''),
    revision: call.revision,
    caller: call.principal ?? null,
    created: new Date(call.created).toISOString(),
    expires: new Date(call.expires).toISOString(),
    asks: [...folded.open.values()].map(({ method }) => method),
    /** Since when its oldest open question waits; null where none does, or where an earlier release asked it. */
    asked: asked ? new Date(asked).toISOString() : null,
    completed: folded.completions.length,
  };
}

/** When the oldest open question was asked, in milliseconds since the epoch. */
function askedAt({ entries, folded }: Story): number | undefined {
  for (const entry of entries) {
    if (entry.type !== 'asked' && entry.type !== 'suspended') continue;
    const asks = entry.type === 'asked' ? [entry.ask] : entry.checkpoint.open;
    if (asks.some(({ key }) => folded.open.has(key))) return entry.when;
  }
  return undefined;
}

const HEADER = ['CALL', 'STATUS', 'AGE', 'ASKED', 'REQUEST', 'CALLER', 'WAITS FOR'];

/**
 * Columns as wide as their widest cell; the last one has no end.
 * @param length characters of a call's label
 */
function tableOf(rows: readonly CallRow[], length: number): string {
  const now = Date.now();
  const lines = [HEADER];
  for (const { call, status, created, asked, method, target, caller, asks } of rows)
    lines.push([
      call.slice(0, length),
      status,
      age(now - Date.parse(created)),
      asked === null ? '-' : age(now - Date.parse(asked)),
      `${method} ${visible(target)}`,
      caller === null ? 'anonymous' : visible(caller),
      asks.join(', '),
    ]);
  const widths = HEADER.map((_, column) => Math.max(...lines.map((cells) => cells[column]?.length ?? 0)));
  const padded = lines.map((cells) => cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)));
  return padded.map((cells) => cells.join('  ').trimEnd()).join('\n');
}

/** In the largest unit of which there is one. */
function age(milliseconds: number): string {
  const units = [
    ['d', 86_400],
    ['h', 3_600],
    ['m', 60],
  ] as const;
  const seconds = Math.max(0, Math.floor(milliseconds / 1_000));
  for (const [unit, length] of units) if (seconds >= length) return `${Math.floor(seconds / length)}${unit}`;
  return `${seconds}s`;
}

function show(story: Story, shown: ShownCall): void {
  if (shown.json) {
    write(JSON.stringify(rowOf(story)));
    for (const entry of story.entries) write(JSON.stringify(toldOf(entry, shown)));
    return;
  }
  write(tableOf([rowOf(story)], Infinity));
  if (shown.answers) write(`  arguments: ${jsonOf(story.call.params.arguments ?? {})}`);
  for (const [at, entry] of story.entries.entries()) {
    const { what, detail } = toldOf(entry, shown);
    write(`  ${String(at).padStart(3)}  ${what}${detail === undefined ? '' : `: ${detail}`}`);
  }
}

interface ShownEntry {
  readonly what: string;
  readonly detail?: string;
}

/** An entry as a line of a call's history. Arguments, answers and results are hidden unless a flag shows them. */
function toldOf(entry: Entry, { answers }: ShownCall): ShownEntry {
  const content = (value: unknown): string => (answers ? jsonOf(value) : '(hidden)');
  switch (entry.type) {
    case 'called':
      return { what: entry.isTask ? 'called, as a task' : 'called' };
    case 'asked':
      return { what: `asked ${entry.ask.method}`, detail: content(entry.ask.params) };
    case 'suspended': {
      const { open, completions } = entry.checkpoint;
      const asks = open.map(({ method, params }) => `${method} ${content(params)}`).join('; ');
      return { what: `waits, with ${completions.length} completed`, detail: asks };
    }
    case 'claimed':
      return {
        what: `answered ${entry.answers.length}`,
        detail: entry.answers.map(({ response }) => content(response)).join('; '),
      };
    case 'completed': {
      const { completion } = entry;
      return completion.kind === 'step'
        ? { what: `stepped ${visible(completion.path)}`, detail: content(completion.outcome) }
        : { what: `answered ${completion.method}`, detail: content(completion.response) };
    }
    case 'ended': {
      const { response } = entry;
      return 'error' in response
        ? { what: 'failed', detail: content(response.error) }
        : { what: 'completed', detail: content(response.result) };
    }
    default:
      return { what: entry.type };
  }
}

/** JSON whose strings cannot move the terminal's cursor. */
function jsonOf(value: unknown): string {
  return escaped(JSON.stringify(value) ?? '');
}

/** Escapes names from elsewhere, so that they cannot move the terminal's cursor or begin a line. */
function visible(text: string): string {
  return shortText(text, 200);
}

function named(label: string | undefined): string {
  if (label === undefined || label === '') throw wrong('needs a call, as mcp-await calls list shows it');
  return label;
}

function write(line: string): void {
  process.stdout.write(`${line}\n`);
}

function wrong(what: string): AwaitError {
  return optionError(`calls ${what}`);
}
