/** A transcript: a scenario and its outcomes, as JSON, to compare with a later version of the server. */
import { isObject, optionError } from '../base/values.ts';
import type { Comparison } from './compare.ts';
import { type Difference, gathered } from './differences.ts';
import type { Column, PlayedStep } from './play.ts';
import type { Scenario } from './scenario.ts';
import { versionDifferences } from './versions.ts';

const FORMAT = 1;

type KeptStep = Pick<PlayedStep, 'title' | 'outcome' | 'asks' | 'ran'>;

/** A played scenario as JSON: see `transcript`. */
export interface Transcript {
  readonly format: typeof FORMAT;
  readonly server: string;
  readonly scenario: Scenario;
  readonly columns: readonly (Pick<Column, 'name' | 'revision' | 'client'> & {
    readonly steps: readonly KeptStep[];
  })[];
}

/**
 * A comparison as JSON, to compare later versions of the server with.
 *
 * @throws AwaitError `bad-option` if `answers` is a function, which a file cannot hold
 *
 * @example
 * import { writeFileSync } from 'node:fs';
 * import { everyRevision, transcript } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * const comparison = await everyRevision(buildServer, { steps: [{ call: 'greet' }] });
 * writeFileSync('greet.json', JSON.stringify(transcript(comparison)));
 */
export function transcriptOf({ scenario, columns, versions }: Comparison): Transcript {
  if (scenario.steps.some((step) => 'answers' in step && typeof step.answers === 'function')) {
    throw optionError('a transcript holds the answers of its user: write them as a list, not as a function');
  }
  const server = versions.at(-1) ?? '';
  const kept = columns.filter(
    ({ name, revision }) => versions.length === 1 || name === `${revision} ${server}`,
  );
  return {
    format: FORMAT,
    server,
    scenario,
    columns: kept.map(({ name, revision, client, steps }) => ({
      name,
      revision,
      client,
      steps: steps.map(({ title, outcome, asks, ran }) => ({ title, outcome, asks, ran })),
    })),
  };
}

/** @throws AwaitError `bad-option` for a file that is not a transcript of this format */
export function readTranscript(text: string, path: string): Transcript {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw optionError(`${path} is not a transcript: it is not JSON`, error);
  }
  if (
    !isObject(value) ||
    value.format !== FORMAT ||
    !Array.isArray(value.columns) ||
    !isObject(value.scenario)
  ) {
    throw optionError(`${path} is not a transcript of format ${FORMAT}: record it with --record`);
  }
  return value as unknown as Transcript;
}

/**
 * The differences between a server and a transcript of an earlier version, on the revisions that both have.
 *
 * @example
 * import assert from 'node:assert/strict';
 * import { differencesFrom, everyRevision, type Transcript } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * export async function compareWith(recorded: Transcript) {
 *   assert.deepEqual(differencesFrom(recorded, await everyRevision(buildServer, recorded.scenario)), []);
 * }
 */
export function differencesFrom(recorded: Transcript, now: Comparison): Difference[] {
  const before = recorded.columns.map(
    (column): Column => ({
      ...column,
      messages: [],
      steps: column.steps.map((step) => ({ ...step, ...UNKNOWN })),
    }),
  );
  const names = {
    old: `the recording of ${recorded.server}`,
    renewed: now.versions.at(-1) ?? 'this version',
  };
  return gathered(versionDifferences(before, now.columns, names, now.same));
}

/** The parts of a played step that a transcript does not hold. */
const UNKNOWN: Omit<PlayedStep, keyof KeptStep> = {
  unanswered: [],
  unused: [],
  effects: [],
  reworded: [],
  roundTrips: 0,
  bytes: 0,
  time: 0,
  log: [],
};
