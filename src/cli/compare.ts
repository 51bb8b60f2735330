/** `mcp-await compare`: one server under every revision, or two versions of it, side by side. */

import { accessSync, constants, existsSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { NAMES, type Revision } from '../../compat/revisions.ts';
import { isObject, type JsonObject, objectOf, optionError, reasonOf } from '../base/values.ts';
import { speakerOf } from '../compare/clients.ts';
import { type CompareOptions, type Comparison, compare, type Progress } from '../compare/compare.ts';
import { NEWEST_LIVE } from '../compare/newest.ts';
import { UNSEEN } from '../compare/notes.ts';
import { PATIENCE } from '../compare/play.ts';
import { type ReadScenario, readScenario } from '../compare/read-scenario.ts';
import { type Answer, DEFAULT_CAPABILITIES, type Scenario, type Step } from '../compare/scenario.ts';
import { type ServerProcess, startServer, type Version } from '../compare/server-process.ts';
import { Stage } from '../compare/stage.ts';
import { tableOf } from '../compare/table.ts';
import { differencesFrom, readTranscript, transcriptOf } from '../compare/transcript.ts';
import { filledIn, type PlayedAsk, valueFor } from '../compare/user.ts';
import { PlayWire } from '../compare/wire.ts';
import { onSignals } from '../doors/http/shutdown.ts';
import { argumentsBy } from './arguments.ts';
import { failureText } from './failure.ts';
import { choice, readText, whole } from './values.ts';

const COMPARE_USAGE = `mcp-await compare <module> [<new module>] [options]
mcp-await compare [options] -- <command> [args…]

  plays one scenario against a server under every revision, and says what differs

    mcp-await compare ./server.ts --call-all --write booking.yaml
    mcp-await compare ./old.ts ./new.ts --scenario booking.yaml

  --scenario FILE      YAML or TypeScript; by default every tool that is marked readOnlyHint is called once
  --call-all           without a scenario: calls the other tools, too, which act for real
  --write FILE         writes the scenario that was played, to be edited
  --revision NAME      plays this one; repeatable                           (default all)
  --processes N        POSTs go to them in turn           (default 2; 1 for a command)
  --no-callers         does not look for what leaks between two callers
  --record FILE        writes a transcript
  --against FILE       compares with a transcript that was recorded before
  --json               prints JSON instead of the table
  --html FILE          writes a page with every message
  --ui                 serves the page live: runs a scenario or a tool, while processes are killed and started
  --port N             of --ui; by default a free one

  exit code 0: all agree; 1: something differs; 2: the scenario or the server is wrong
`;

const print = process.stdout.write.bind(process.stdout);

/** @returns the exit code */
export async function compareCommand(args: readonly string[]): Promise<0 | 1 | 2> {
  try {
    // The module of a scenario may print, too.
    if (args.includes('--json')) process.stdout.write = process.stderr.write.bind(process.stderr);
    return await run(args);
  } catch (error) {
    const text = failureText(error);
    process.stderr.write(`mcp-await: ${text}\n`);
    if (args.includes('--json')) print(`${JSON.stringify({ exitCode: 2, error: text }, null, 2)}\n`);
    return 2;
  }
}

async function run(args: readonly string[]): Promise<0 | 1 | 2> {
  const dashes = args.indexOf('--');
  const command = dashes < 0 ? [] : args.slice(dashes + 1);
  const own = dashes < 0 ? [...args] : args.slice(0, dashes);
  if (own.includes('--help') || own.includes('-h')) {
    print(COMPARE_USAGE);
    return 0;
  }
  const { values, positionals } = argumentsBy<CompareFlags>(COMPARE_USAGE, own, 'compare');
  const versions = versionsOf(positionals, command);
  if (values.write !== undefined && existsSync(values.write)) {
    throw optionError(`--write ${values.write} exists already; play it with --scenario ${values.write}`);
  }
  checkWritable(values);
  const against =
    values.against === undefined
      ? undefined
      : readTranscript(readText('against', values.against), values.against);
  const given = values.scenario === undefined ? undefined : await readScenario(values.scenario);
  const [version] = versions;
  if (values.ui) return serveUi(version, given?.scenario, revisionsOf(values.revision), values);
  const made =
    given === undefined && against === undefined ? await madeFor(version, values['call-all']) : undefined;
  const read: ReadScenario = given ?? {
    scenario: against?.scenario ?? made?.scenario ?? { steps: [] },
    lineOf: () => undefined,
  };
  const progress = progressLine(read.scenario.steps.length);
  const options: CompareOptions = {
    revisions: revisionsOf(
      values.revision,
      against?.columns.map(({ revision }) => revision),
    ),
    // What such a server keeps in memory is in one place, and its calls are not run again.
    processes: whole('processes', values.processes ?? (command.length > 0 ? '1' : '2'), 1, 26),
    callers: !values['no-callers'],
    isMade: given === undefined,
    uncalled: made?.uncalled ?? [],
    onProgress: progress.show,
  };
  let comparison = await compare(versions, read.scenario, options).finally(progress.clear);
  if (against !== undefined) {
    const changed = differencesFrom(against, comparison);
    comparison = { ...comparison, differences: [...comparison.differences, ...changed] };
  }
  await write(values, comparison);
  if (values.json) print(jsonReport(comparison));
  else {
    const { columns, isTTY } = process.stdout;
    print(
      tableOf(comparison, {
        width: columns ?? 150,
        color: isTTY === true && process.env.NO_COLOR === undefined,
        lineOf: read.lineOf,
      }),
    );
    for (const flag of OUTPUTS) if (values[flag] !== undefined) print(`wrote ${values[flag]}\n`);
  }
  return exitCodeOf(comparison);
}

/** Flags that name a file to be written. */
const OUTPUTS = ['write', 'record', 'html'] as const;
type Outputs = { readonly [Flag in (typeof OUTPUTS)[number]]?: string | undefined };

async function write(outputs: Outputs, comparison: Comparison): Promise<void> {
  const { write, record, html } = outputs;
  if (write !== undefined) writeTo('write', write, await writtenScenario(comparison));
  if (record !== undefined)
    writeTo('record', record, `${JSON.stringify(transcriptOf(comparison), null, 2)}\n`);
  if (html !== undefined) {
    const { pageOf } = await import('../compare/page.ts');
    writeTo('html', html, pageOf(comparison));
  }
}

function writeTo(flag: string, path: string, text: string): void {
  writable(flag, path, () => writeFileSync(path, text));
}

/** @throws AwaitError `bad-option` for a file that cannot be written; a comparison takes too long to find out after it */
function checkWritable(outputs: Outputs): void {
  for (const flag of OUTPUTS) {
    const path = outputs[flag];
    if (path !== undefined)
      writable(flag, path, () => accessSync(existsSync(path) ? path : dirname(path), constants.W_OK));
  }
}

function writable(flag: string, path: string, act: () => void): void {
  try {
    act();
  } catch (error) {
    throw optionError(`--${flag} ${path} cannot be written: ${reasonOf(error)}`, error);
  }
}

type CompareFlags = Outputs & {
  readonly [Name in 'scenario' | 'processes' | 'against' | 'port']?: string;
} & {
  readonly [Name in 'no-callers' | 'json' | 'call-all' | 'ui']?: true;
} & { readonly revision?: readonly string[] };

function versionsOf(modules: readonly string[], command: readonly string[]): [Version, Version?] {
  const [first, second, ...more] = modules;
  if (command.length > 0 && first === undefined) {
    return [{ name: basename(command.at(-1) ?? ''), server: { command } }];
  }
  if (command.length > 0)
    throw optionError(`compare takes a module or a command; '${first}' stands before the command`);
  if (first === undefined || more.length > 0) {
    throw optionError('compare takes one module, or an old and a new one: mcp-await compare ./server.ts');
  }
  for (const module of modules) if (!existsSync(module)) throw optionError(`there is no file ${module}`);
  // Two versions with one file name are shown with their folders.
  const isNamed = second === undefined || basename(first) !== basename(second);
  const version = (module: string): Version => ({
    name: isNamed ? basename(module) : module,
    server: { module },
  });
  return modules.map(version) as [Version, Version?];
}

function revisionsOf(
  named: readonly string[] | undefined,
  recorded?: readonly Revision[],
): readonly Revision[] {
  return named?.map((name) => choice('revision', name, NAMES)) ?? recorded ?? NAMES;
}

/** Serves the page until a signal ends the process. */
async function serveUi(
  version: Version,
  given: ReadScenario['scenario'] | undefined,
  revisions: readonly Revision[],
  values: CompareFlags,
): Promise<0> {
  const [{ Live }, { serveLive }] = await Promise.all([
    import('../compare/live.ts'),
    import('../compare/live-server.ts'),
  ]);
  const { scenario, tools, uncalled } = await madeFor(version, values['call-all']);
  const live = await Live.start(version, {
    scenario: given ?? scenario,
    revisions,
    tools: tools.map(({ name, inputSchema }) => ({ name: String(name), inputSchema: objectOf(inputSchema) })),
    uncalled: given === undefined ? uncalled : [],
  });
  const server = await serveLive(live, whole('port', values.port ?? '0', 0, 65_535));
  print(`open ${server.url}/\n`);
  await new Promise<void>((resolve) => onSignals(async () => resolve()));
  await server.close();
  await live.close();
  return 0;
}

async function madeFor(version: Version, isAll = false): Promise<FirstScenario> {
  const server = await startServer(version);
  return firstScenario(server, isAll).finally(() => server.kill());
}

/** One line on stderr, written over, where somebody watches. */
function progressLine(steps: number): { show(progress: Progress): void; clear(): void } {
  const say = (line: string): void => {
    if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${line}`);
  };
  return {
    show: ({ column, step }) => say(`${column}: step ${step + 1} of ${steps}`),
    clear: () => say(''),
  };
}

// --- the scenario of those who have none ---

/** Generates a server's first scenario from its own tools, prompts and resources and their schemas. */

/** A scenario that calls each tool once, and the list of tools that it is made from. */
interface FirstScenario {
  readonly scenario: Scenario;
  readonly tools: readonly JsonObject[];
  /** Names of tools that it does not call. */
  readonly uncalled: readonly string[];
}

/** @param isAll whether tools that are not marked `readOnlyHint` are called too: they may act for real */
async function firstScenario(server: ServerProcess, isAll: boolean): Promise<FirstScenario> {
  const stage = new Stage();
  const site = await server.open(
    { revision: NEWEST_LIVE, frames: 'kept', capabilities: DEFAULT_CAPABILITIES },
    stage,
  );
  const wire = await PlayWire.open([{ name: 'A', url: site.url }]);
  try {
    const opening = speakerOf(NEWEST_LIVE).open(
      wire.url,
      { name: 'side-by-side', capabilities: DEFAULT_CAPABILITIES },
      async () => ({ roots: [] }),
    );
    const player = await stage.connected(NEWEST_LIVE, opening);
    // A server without any of a kind responds that the method is unknown.
    const listed = async (kind: 'tools' | 'prompts' | 'resources'): Promise<JsonObject[]> => {
      const result = await player.request(`${kind}/list`, {}, PATIENCE).catch((): JsonObject => ({}));
      return Array.isArray(result[kind]) ? result[kind].filter(isObject) : [];
    };
    const tools = await listed('tools');
    const called = tools.filter(
      (tool) => isAll || (isObject(tool.annotations) && tool.annotations.readOnlyHint === true),
    );
    const uncalled = tools.filter((tool) => !called.includes(tool)).map(({ name }) => String(name));
    const prompts = await listed('prompts');
    const [resource] = await listed('resources');
    await player.close();
    const steps: Step[] = [
      { list: 'tools' },
      ...called.map(callOf),
      ...(prompts.length > 0 ? [{ list: 'prompts' } as const] : []),
      ...prompts.map(promptOf),
      ...(resource === undefined ? [] : [{ list: 'resources' } as const, { read: String(resource.uri) }]),
      // Listed again: shows whether tools that a call registers appear.
      { list: 'tools' },
    ];
    const name = `every tool${uncalled.length > 0 ? ' that is marked readOnlyHint' : ''} once, its forms filled in from their schemas`;
    return { scenario: { name, steps }, tools, uncalled };
  } finally {
    await wire.close();
    await stage.close();
  }
}

function callOf({ name, inputSchema }: JsonObject): Step {
  const schema = objectOf(inputSchema);
  // Only required arguments: every other one is its author's choice.
  const required = Array.isArray(schema.required) ? schema.required : [];
  const args = required.length === 0 ? {} : filledIn(schema);
  return { call: String(name), ...(Object.keys(args).length > 0 && { with: args }) };
}

function promptOf({ name, arguments: list }: JsonObject): Step {
  const required = (Array.isArray(list) ? list.filter(isObject) : []).filter(
    (item) => item.required === true,
  );
  const args = required.map((item) => [String(item.name), String(valueFor(String(item.name), {}))]);
  return { prompt: String(name), ...(args.length > 0 && { with: Object.fromEntries(args) }) };
}

// --- reports ---

/** A comparison for machines: JSON, and its scenario as YAML. */

/** 0 where all agree, 1 where outcomes differ, 2 where the scenario or the server is wrong. */
function exitCodeOf({ differences, problems }: Comparison): 0 | 1 | 2 {
  if (problems.length > 0) return 2;
  return differences.length > 0 ? 1 : 0;
}

function jsonReport(comparison: Comparison): string {
  const { same, columns, ...rest } = comparison;
  const report = {
    exitCode: exitCodeOf(comparison),
    ...rest,
    unseen: UNSEEN,
    columns: columns.map(({ messages, ...column }) => column),
  };
  return `${JSON.stringify(report, null, 2)}\n`;
}

// --- a scenario with its answers ---

/** A scenario as YAML, with the answers that were given, to be edited. */

const HEAD = '# yaml-language-server: $schema=./node_modules/mcp-await/dist/scenario.schema.json\n';

async function writtenScenario({ scenario, columns }: Comparison): Promise<string> {
  const { stringify } = await import('yaml');
  const steps = scenario.steps.map((step, index): Step => {
    const asked = columns.map((column) => column.steps[index]?.asks ?? []);
    const most = asked.reduce((longest, asks) => (asks.length > longest.length ? asks : longest), []);
    const answers = most.flatMap(answerOf);
    return 'list' in step || answers.length === 0 ? step : { ...step, answers };
  });
  return `${HEAD}${stringify({ ...scenario, steps })}`;
}

/** Roots are the client's, not an answer. */
function answerOf({ method, question, params, answer }: PlayedAsk): Answer[] {
  if (method === 'roots/list') return [];
  const to = question.split('\n')[0] ?? '';
  if (isObject(answer.content) && method === 'sampling/createMessage') {
    return [{ sample: String(answer.content.text) }];
  }
  if (answer.action === 'decline') return [{ to, decline: true }];
  if (answer.action === 'cancel') return [{ to, cancel: true }];
  return [{ to, accept: params.mode === 'url' || !isObject(answer.content) ? true : answer.content }];
}
