/**
 * Plays a scenario whose processes end and start during its calls: its outcomes must be those of an undisturbed one.
 */

import { NAMES, type Revision } from '../../compat/revisions.ts';
import { optionError } from '../base/values.ts';
import type { HostFactory } from '../host/host.ts';
import { type Comparison, concluded } from './compare.ts';
import { askDifferences, type Difference, outcomeDifference } from './differences.ts';
import { NEWEST_LIVE, newestModern } from './newest.ts';
import type { Column, PlayedStep } from './play.ts';
import { checkScenario } from './read-scenario.ts';
import { brokenBy, replayDifferences } from './replayed.ts';
import { questionsOf, type Sameness, varyingIn } from './same.ts';
import type { Scenario } from './scenario.ts';
import { startServer } from './server-process.ts';
import { alternating, type Moves, moving, type RunningVersion, type Setting } from './settings.ts';
import { UNDISTURBED } from './table.ts';

/** The options of `alwaysReplay` and `crashAt`. */
export interface RobustOptions {
  /** Revisions to play. Default: all. */
  readonly revisions?: readonly Revision[];
}

/** Where a process dies: once this step is recorded, before this answer (from 1), or after each entry in turn. */
export type CrashPoint = { readonly step: string } | { readonly ask: number } | 'every';

/**
 * Drops the frame of a call at each of its asks: every answer goes to a new instance in another handler, which has only
 * the journal.
 *
 * @returns the differences from one handler that keeps its frames
 *
 * @example
 * import assert from 'node:assert/strict';
 * import { alwaysReplay } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * const { differences } = await alwaysReplay(buildServer, { steps: [{ call: 'greet' }] });
 * assert.deepEqual(differences, []);
 */
export function alwaysReplay(
  factory: HostFactory,
  scenario: Scenario,
  options: RobustOptions = {},
): Promise<Comparison> {
  return disturbed(factory, scenario, options, [REPLAYING]);
}

/**
 * Kills the process of a call; another one takes it over after its lease.
 *
 * @returns the differences from a process that lives
 *
 * @example
 * import assert from 'node:assert/strict';
 * import { crashAt } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * const { differences } = await crashAt(buildServer, { ask: 1 }, { steps: [{ call: 'greet' }] });
 * assert.deepEqual(differences, []);
 */
export function crashAt(
  factory: HostFactory,
  point: CrashPoint,
  scenario: Scenario,
  options: RobustOptions = {},
): Promise<Comparison> {
  return disturbed(factory, scenario, options, [crashing(point)]);
}

/**
 * Joins `alwaysReplay`, `crashAt` after each entry of the journal (each ask, each answer, each step), and the effects
 * outside of steps: what it takes for a tool to run in several processes that may end at any time.
 *
 * @param options `revisions`: by default one whose asks are live and one whose asks end their requests
 * @returns the differences from a process that lives and keeps its frames
 *
 * @example
 * import assert from 'node:assert/strict';
 * import { survivesRestarts } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * const { differences, problems } = await survivesRestarts(buildServer, { steps: [{ call: 'greet' }] });
 * assert.deepEqual([differences, problems], [[], []]);
 */
export function survivesRestarts(
  factory: HostFactory,
  scenario: Scenario,
  { revisions = BOTH_WAYS }: RobustOptions = {},
): Promise<Comparison> {
  return disturbed(factory, scenario, { revisions }, [REPLAYING, crashing('every')]);
}

const BOTH_WAYS = [NEWEST_LIVE, newestModern()].filter((one) => one !== undefined);

const REPLAYING: Disturbance = {
  kind: 'replay',
  columnsOf: async (setting, path) => [
    await moving(named(setting, 'always replayed'), path, { atAnswer: () => 'close' }),
  ],
};

function crashing(point: CrashPoint): Disturbance {
  const columnsOf: Disturbance['columnsOf'] = async (setting, path) => {
    if (point !== 'every') {
      const where = 'step' in point ? `step ${point.step}` : `ask ${point.ask}`;
      let crashes = 0;
      const moves = movesAt(point, () => {
        crashes += 1;
      });
      const column = await moving(named(setting, `crash at ${where}`), path, moves);
      if (crashes > 0) return [column];
      throw optionError(`crashAt: no call reaches ${where} on ${setting.revision}`);
    }
    let entries = 0;
    await moving(setting, path, {
      atEntry: () => {
        entries += 1;
        return false;
      },
    });
    const columns: Column[] = [];
    for (let nth = 1; nth <= entries; nth += 1) {
      columns.push(
        await moving(named(setting, `crash after entry ${nth} of ${entries}`), path, {
          atEntry: (_entry, at) => at === nth,
        }),
      );
    }
    return columns;
  };
  return { kind: 'crash', columnsOf };
}

function movesAt(point: Exclude<CrashPoint, 'every'>, onCrash: () => void): Moves {
  if ('ask' in point) {
    return {
      atAnswer: (_step, nth) => {
        if (nth !== point.ask) return undefined;
        onCrash();
        return 'crash';
      },
    };
  }
  return {
    atEntry: (entry) => {
      const { completion } = entry.type === 'completed' ? entry : {};
      if (completion?.kind !== 'step' || completion.path !== point.step) return false;
      onCrash();
      return true;
    },
  };
}

interface Disturbance {
  readonly kind: 'replay' | 'crash';
  readonly columnsOf: (setting: Setting, path: readonly RunningVersion[]) => Promise<Column[]>;
}

async function disturbed(
  factory: HostFactory,
  scenario: Scenario,
  { revisions = NAMES }: RobustOptions,
  disturbances: readonly Disturbance[],
): Promise<Comparison> {
  await checkScenario(scenario);
  const version = { name: 'server', server: factory };
  const path = [version, version].map((one) => ({ version: one, server: () => startServer(one) }));
  const ignore = (scenario.ignore ?? []).map((pattern) => new RegExp(pattern, 'g'));
  const columns: Column[] = [];
  const found: Difference[] = [];
  let same: Sameness = { ignore, varying: [] };
  for (const revision of revisions) {
    const setting: Setting = { name: `${revision}${UNDISTURBED}`, revision, scenario };
    const stage = await alternating(setting, [await startServer(version)]);
    const twice = async () => [toldOnce(await stage.again()), toldOnce(await stage.again())] as const;
    const [measure, again] = await twice().finally(() => stage.close());
    same = { ignore, varying: varyingIn(measure.steps, again.steps, ignore) };
    columns.push(measure);
    for (const { kind, columnsOf } of disturbances) {
      for (const column of (await columnsOf(setting, path)).map(toldOnce)) {
        columns.push(column);
        found.push(
          ...(kind === 'replay'
            ? replayDifferences({ replayed: column, kept: [measure, again] }, same)
            : crashDifferences(column, measure, same)),
        );
      }
    }
  }
  return concluded({ scenario, versions: [version.name], columns, found, uncalled: [], same });
}

function crashDifferences(column: Column, measure: Column, same: Sameness): Difference[] {
  return column.steps.flatMap((step, index): Difference[] => {
    const other = measure.steps[index];
    if (other === undefined) return [];
    const words = outcomeDifference(step, { name: measure.name, step: other }, index, same);
    const asks = askDifferences(questionsOf(step, same), questionsOf(other, same), 'undisturbed');
    const why = brokenBy(step.log);
    return [...words, ...asks].map(([, text]) => ({
      kind: 'crash',
      step: index,
      columns: [column.name],
      text: why === undefined ? text : `${text}: ${why}`,
    }));
  });
}

/** Removes repeated asks: a client that reconnects gets open asks again, without asking its user twice. */
function toldOnce(column: Column): Column {
  const once = ({ asks, ...step }: PlayedStep): PlayedStep => ({
    ...step,
    asks: asks.filter(({ question }, nth) => asks.findIndex((ask) => ask.question === question) === nth),
  });
  return { ...column, steps: column.steps.map(once) };
}

function named(setting: Setting, how: string): Setting {
  return { ...setting, name: `${setting.revision} ${how}` };
}
