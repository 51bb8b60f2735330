/**
 * `mcp-await/testing`: a server under every revision, in a test. It works without vitest: each function returns a
 * comparison, whose `differences` are empty if the revisions agree.
 */

import type { HostFactory } from '../host/host.ts';
import { type CompareOptions, type Comparison, compare } from './compare.ts';
import type { Scenario } from './scenario.ts';

export type { CompareOptions, Comparison } from './compare.ts';
export type { Difference, DifferenceKind } from './differences.ts';
export type { Column, Outcome, PlayedStep } from './play.ts';
export type { Problem } from './problems.ts';
export {
  alwaysReplay,
  type CrashPoint,
  crashAt,
  type RobustOptions,
  survivesRestarts,
} from './robust.ts';
export type {
  Answer,
  Answering,
  Ask,
  Expectation,
  Scenario,
  Step,
} from './scenario.ts';
export { tableOf } from './table.ts';
export {
  differencesFrom,
  type Transcript,
  transcriptOf as transcript,
} from './transcript.ts';

/**
 * Plays a scenario under every revision: real handlers on loopback, two for each revision with POSTs alternating
 * between them, and the official clients where they speak the revision.
 *
 * @example
 * import assert from 'node:assert/strict';
 * import { everyRevision } from 'mcp-await/testing';
 * import buildServer from './server.js';
 *
 * const { differences, problems } = await everyRevision(buildServer, { steps: [{ call: 'greet' }] });
 * assert.deepEqual([differences, problems], [[], []]);
 */
export function everyRevision(
  factory: HostFactory,
  scenario: Scenario,
  options: CompareOptions = {},
): Promise<Comparison> {
  return compare([{ name: 'server', server: factory }], scenario, options);
}
