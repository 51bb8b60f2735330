/** A comparison: a scenario under every revision, of one version of a server or of two, and the differences. */
import { AwaitError } from '../../src/base/error.ts';
import { NAMES, type Revision, TABLE } from '../revisions.ts';
import { findLeaks } from './callers.ts';
import { type Difference, differencesBetween, gathered } from './differences.ts';
import type { Column } from './play.ts';
import { expectationDifferences, type Problem, problemsIn } from './problems.ts';
import { replayDifferences } from './replayed.ts';
import { type Sameness, STRICT, varyingIn } from './same.ts';
import type { Scenario } from './scenario.ts';
import { type ServerProcess, startServer, type Version } from './server-process.ts';
import { alternating, moving, type Setting } from './settings.ts';
import { upgradeDifferences, versionDifferences } from './versions.ts';

/** The options of `everyRevision`. */
export interface CompareOptions {
  /** Revisions to play. Default: all. */
  readonly revisions?: readonly Revision[];
  /** Processes that POSTs go to in turn. Default 2. */
  readonly processes?: number;
  /** Whether the scenario was generated: calls that fail everywhere are then not its author's mistake. */
  readonly isMade?: boolean;
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
  /** The parts that were not compared. */
  readonly same: Sameness;
}

/** @param versions one, or the old one and the new one */
export async function compare(
  versions: readonly [Version, Version?],
  scenario: Scenario,
  options: CompareOptions = {},
): Promise<Comparison> {
  const { revisions = NAMES, processes = 2, callers = true, onProgress } = options;
  const [old, renewed] = versions;
  const probed = probedOf(revisions);
  const ignore = (scenario.ignore ?? []).map((pattern) => new RegExp(pattern, 'g'));
  const found: Difference[] = [];
  let same: Sameness = { ...STRICT, ignore };
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
      const column = await stage.again();
      if (revision !== probed || version !== old) return column;
      const silent = { onStep: () => {} };
      same = { ignore, varying: varyingIn(column.steps, (await stage.again(silent)).steps, ignore) };
      kept = [await stage.kept(silent), await stage.kept(silent)];
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
      server: async () => firstOf(await processesOf(version)),
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
  found.push(...expectationDifferences(scenario, columns));
  return {
    scenario,
    versions: versions.flatMap((version) => (version === undefined ? [] : [version.name])),
    columns,
    differences: gathered(found),
    problems: options.isMade ? [] : problemsIn(scenario, columns),
    same,
  };
}

/** Where plays are repeated: the newest revision without sessions, on which every answer is a replay. */
function probedOf(revisions: readonly Revision[]): Revision | undefined {
  return revisions.findLast((name) => TABLE.get(name)?.era === 'modern') ?? revisions.at(-1);
}

function firstOf(processes: readonly ServerProcess[]): ServerProcess {
  const [first] = processes;
  if (first === undefined) throw new AwaitError('bad-option', 'a comparison needs at least one process');
  return first;
}
