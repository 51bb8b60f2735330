/**
 * A comparison: a scenario under every revision, of one version of a server or of two, and the differences.
 *
 * `src/compare` plays one scenario under every revision and says what differs; `mcp-await/testing` and `mcp-await
 * compare` are its two faces.
 *
 * 1. A `Site` is one handler of one version, for one revision, on a port of its own. Sites of a play share a
 *    `Stage`: store, relay, secret, log. They are in this process (for a factory) or in child processes (for a
 *    module), which reach the stage over Node's IPC channel; the store is a map with the journal's primitive.
 * 2. A `Wire` is between one client and its sites. It sends each POST to the next site, keeps every message, and
 *    sends a request again if its site ended before it replied.
 * 3. `clients.ts` says which client speaks a revision; nothing else in the folder names one. Each result is the
 *    client's, not what the wire saw.
 * 4. A `Column` is one play: outcome, questions, steps and log lines of each step of the scenario, and the messages.
 *    Columns are compared with what most of them have.
 * 5. Words that differ between two plays on one revision are not compared (`same.ts`). Replay differences are found
 *    by comparing plays that drop frames with plays that keep them; leaks by two callers whose answers carry marks;
 *    renamed steps by the names in the journals. `effects/` observes what a call does outside of its steps.
 * 6. The page (`page/`, preact) is bundled by esbuild at build time into one HTML file beside the compiled code; the
 *    comparison is put into it as JSON. Nothing of it is in what a server imports.
 */

import { randomBytes } from 'node:crypto';
import { NAMES, type Revision } from '../../compat/revisions.ts';
import { deferred, isObject, type JsonObject, objectOf, sleep, systemClock } from '../base/values.ts';
import { type Difference, differencesBetween, gathered, short } from './differences.ts';
import { effectDifferences } from './effects/differences.ts';
import {
  type CountedPlay,
  countedPlay,
  counterDifferences,
  stateDifferences,
} from './effects/state-differences.ts';
import { newestModern } from './newest.ts';
import type { Column, Performance } from './play.ts';
import { expectationDifferences, type Problem, problemsIn } from './problems.ts';
import { checkScenario } from './read-scenario.ts';
import { replayDifferences } from './replayed.ts';
import { type Sameness, varyingIn } from './same.ts';
import type { Scenario } from './scenario.ts';
import { type ServerProcess, startServer, type Version } from './server-process.ts';
import { alternating, moving, type Replayable, type Setting } from './settings.ts';
import { upgradeDifferences, versionDifferences } from './versions.ts';

/** The options of `everyRevision`. */
export interface CompareOptions {
  /** Revisions to play. Default: all. */
  readonly revisions?: readonly Revision[];
  /** Processes that POSTs go to in turn. Default 2. */
  readonly processes?: number;
  /** Whether the scenario was generated: calls that fail everywhere are then not its author's mistake. */
  readonly isMade?: boolean;
  /** Tools that a generated scenario does not call, for its reports. */
  readonly uncalled?: readonly string[];
  /** Whether two callers are played at once, to find leaks between them. Default true. */
  readonly callers?: boolean;
  readonly onProgress?: (progress: Progress) => void;
}

export interface Progress {
  readonly column: string;
  /** Index of the step that begins. */
  readonly step: number;
}

/** A scenario, played on several revisions, and the differences between them. */
export interface Comparison {
  readonly scenario: Scenario;
  /** Names of the versions that were played. */
  readonly versions: readonly string[];
  readonly columns: readonly Column[];
  readonly differences: readonly Difference[];
  /** Mistakes in the scenario or the server that show on every revision. */
  readonly problems: readonly Problem[];
  /** Tools that a generated scenario does not call, since they are not marked `readOnlyHint`. */
  readonly uncalled: readonly string[];
  /** The parts that were not compared. */
  readonly same: Sameness;
}

/** @param versions one, or the old one and the new one */
export async function compare(
  versions: readonly [Version, Version?],
  scenario: Scenario,
  options: CompareOptions = {},
): Promise<Comparison> {
  const { revisions = NAMES, processes = 2, callers = true, uncalled = [], onProgress } = options;
  await checkScenario(scenario);
  const [old, renewed] = versions;
  // Where plays are repeated: the newest revision without sessions, on which every answer is a replay.
  const probed = newestModern(revisions) ?? revisions.at(-1);
  const ignore = (scenario.ignore ?? []).map((pattern) => new RegExp(pattern, 'g'));
  const found: Difference[] = [];
  let same: Sameness = { ignore, varying: [] };
  let kept: readonly Column[] = [];

  const settingOf = (revision: Revision, name: string): Setting => ({
    name,
    revision,
    scenario,
    onStep: (step) => onProgress?.({ column: name, step }),
  });
  const started = new Map<Version, Promise<ServerProcess>[]>();
  const processesOf = (version: Version): Promise<ServerProcess[]> => {
    const running = started.get(version) ?? Array.from({ length: processes }, () => startServer(version));
    started.set(version, running);
    return Promise.all(running);
  };
  const playOn = async (version: Version, revision: Revision): Promise<Column> => {
    const name = renewed === undefined ? revision : `${revision} ${version.name}`;
    const stage = await alternating(settingOf(revision, name), await processesOf(version));
    try {
      if (revision !== probed || version !== old) return await stage.again();
      const silent = { onStep: () => {} };
      const all = await processesOf(version);
      // Processes of a factory are this one.
      const memories = typeof version.server === 'function' ? all.slice(0, 1) : all;
      const counted = (how: 'again' | 'kept', options: object = silent): Promise<CountedPlay> =>
        countedPlay(memories, (more) => stage[how]({ ...options, ...more }));
      const replayed = [await counted('again', {}), await counted('again')];
      const live = [await counted('kept'), await counted('kept')];
      await Promise.all(memories.map((memory) => memory.counted()));
      const [column, again] = replayed.map((play) => play.column) as [Column, Column];
      same = { ignore, varying: varyingIn(column.steps, again.steps, ignore) };
      kept = live.map((play) => play.column);
      found.push(...stateDifferences(scenario, { replayed, kept: live }));
      found.push(...counterDifferences(scenario, { replayed: [column, again], kept }, ignore));
      if (callers) found.push(...(await findLeaks(stage)));
      return column;
    } finally {
      await stage.close();
    }
  };
  const upgraded = (from: Version, to: Version, revision: Revision): Promise<Column> => {
    const name = `${revision} ${from.name} → ${to.name}`;
    const path = [from, to].map((version) => ({
      version,
      server: async () => (await processesOf(version))[0],
    }));
    return moving(settingOf(revision, name), path, {
      atAnswer: (_step, nth) => (nth === 1 ? 'close' : undefined),
    });
  };

  const columns: Column[] = [];
  try {
    for (const revision of revisions) {
      columns.push(await playOn(old, revision));
      if (renewed === undefined) continue;
      columns.push(await playOn(renewed, revision), await upgraded(old, renewed, revision));
    }
  } finally {
    for (const running of [...started.values()].flat())
      void running.then(
        (server) => server.kill(),
        () => {},
      );
  }
  const isOf =
    ({ name }: Version) =>
    (column: Column) =>
      renewed === undefined || column.name.endsWith(` ${name}`);
  const ofOld = columns.filter((column) => isOf(old)(column) && !column.name.includes('→'));
  found.push(...differencesBetween(ofOld, same));
  const measure = ofOld.find(({ revision }) => revision === probed);
  if (measure !== undefined) found.push(...replayDifferences({ replayed: measure, kept }, same));
  if (renewed !== undefined) {
    const ofNew = columns.filter((column) => isOf(renewed)(column) && !column.name.includes('→'));
    const moved = columns.filter(({ name }) => name.includes('→'));
    const names = { old: old.name, renewed: renewed.name };
    found.push(...differencesBetween(ofNew, same), ...versionDifferences(ofOld, ofNew, names, same));
    found.push(...upgradeDifferences(moved, { old: ofOld, renewed: ofNew }, names, same));
  }
  const names = versions.flatMap((version) => (version === undefined ? [] : [version.name]));
  const all = concluded({ scenario, versions: names, columns, found, uncalled, same });
  return options.isMade ? { ...all, problems: [] } : all;
}

/** @param played with the differences that were found, to which those that one column shows are added */
export function concluded({
  found,
  ...played
}: Omit<Comparison, 'differences' | 'problems'> & { readonly found: readonly Difference[] }): Comparison {
  const { scenario, columns } = played;
  const own = [...expectationDifferences(scenario, columns), ...effectDifferences(scenario, columns)];
  return {
    ...played,
    differences: gathered([...found, ...own]),
    problems: problemsIn(scenario, columns),
  };
}

// --- callers ---

/**
 * Two callers at once, in one process: neither may get the other's data. Each fills its forms in with words of its own,
 * so such a word at the wrong place is a leak.
 */

/** How long one caller waits for the other to come as far, in milliseconds. */
const PATIENCE = 500;

/**
 * Plays a caller "ann" alone, and then together with "bob", to find state that calls share, at once or one after the
 * other.
 */
async function findLeaks(stage: Replayable): Promise<Difference[]> {
  const [ann, bob] = [callerOf('ann'), callerOf('bob')];
  await stage.kept(ann.performance());
  const pace = new Pace();
  const [annAgain, bobs] = await Promise.all([
    stage.kept(ann.performance(pace)),
    stage.kept(bob.performance(pace)),
  ]);
  return [...leaks(bobs, ann.mark), ...leaks(annAgain, bob.mark)];
}

function callerOf(name: string): { readonly mark: string; performance(pace?: Pace): Partial<Performance> } {
  const mark = `${name}-${randomBytes(4).toString('hex')}`;
  return {
    mark,
    performance: (pace) => ({
      name,
      token: mark,
      accent: (content, schema) => accented(content, schema, mark),
      ...(pace !== undefined && {
        beforeAnswer: (step: number, nth: number) => pace.arrive(name, step * 1_000 + nth),
        onStep: (step: number) => pace.pass(name, step * 1_000),
      }),
    }),
  };
}

/** Texts that may be anything become the caller's own. */
function accented(content: JsonObject, schema: JsonObject, mark: string): JsonObject {
  const properties = objectOf(schema.properties);
  const isFree = (field: string): boolean => {
    const property = properties[field];
    if (!isObject(property) || property.type !== 'string') return false;
    return !['enum', 'oneOf', 'anyOf', 'const', 'format', 'pattern', 'maxLength'].some(
      (word) => word in property,
    );
  };
  return Object.fromEntries(
    Object.entries(content).map(([field, value]) => [
      field,
      typeof value === 'string' && isFree(field) ? mark : value,
    ]),
  );
}

function leaks({ steps }: Column, mark: string): Difference[] {
  return steps.flatMap((step, index): Difference[] => {
    const question = step.asks.find((ask) => JSON.stringify(ask.params).includes(mark))?.question;
    const result = JSON.stringify(step.outcome);
    if (question === undefined && !result.includes(mark)) return [];
    const where =
      question === undefined
        ? `its result: ${short(result.slice(Math.max(0, result.indexOf(mark) - 40)))}`
        : `the question "${short(question)}"`;
    const text = `leaks between callers: what one caller answered is told to another one, in ${where}.`;
    return [{ kind: 'leak', step: index, columns: ['two callers'], text }];
  });
}

/** Keeps two callers in step: each gives its next answer when the other has been asked as often. */
class Pace {
  readonly #at = new Map<string, number>();
  #moved = deferred();

  pass(name: string, place: number): void {
    this.#at.set(name, place);
    this.#moved.resolve();
    this.#moved = deferred();
  }

  async arrive(name: string, place: number): Promise<void> {
    this.pass(name, place);
    let isLate = false;
    const late = sleep(systemClock, PATIENCE).then(() => {
      isLate = true;
    });
    const isTogether = (): boolean =>
      this.#at.size === 2 && [...this.#at.values()].every((other) => other >= place);
    while (!isLate && !isTogether()) await Promise.race([this.#moved.promise, late]);
  }
}
