/** How a revision is played: its processes, the process that gets each POST, and the handling of frames. */

import type { Revision } from '../../compat/revisions.ts';
import { optionError } from '../base/values.ts';
import type { Entry } from '../call/journal/entries.ts';
import type { LimitOptions } from '../call/limits.ts';
import { type Column, type Performance, play } from './play.ts';
import { DEFAULT_CAPABILITIES, type Scenario } from './scenario.ts';
import type { ServerProcess, Version } from './server-process.ts';
import type { Site, SiteConfig } from './site.ts';
import { Stage } from './stage.ts';
import { PlayWire, type Target } from './wire.ts';

export interface Setting {
  readonly name: string;
  readonly revision: Revision;
  readonly scenario: Scenario;
  readonly onStep?: (step: number) => void;
}

/** How long a silent process keeps its calls, in milliseconds. */
export const LEASE = 600;

/** Two plays share a stage, and with it the state in the server's module. */
export interface Replayable {
  /** The scenario, each POST sent to the next process; every call that waits is run again from its journal. */
  again(more?: Partial<Performance>): Promise<Column>;
  /** The scenario in the first process alone, where calls wait in their frames. */
  kept(more?: Partial<Performance>): Promise<Column>;
  close(): Promise<void>;
}

/** Opens a site in each of the processes, which are of one version. */
export async function alternating(
  setting: Setting,
  processes: readonly ServerProcess[],
): Promise<Replayable> {
  const [first] = processes;
  if (first === undefined) throw optionError('a comparison needs at least one process');
  const stage = new Stage();
  try {
    const config = configOf(setting, processes.length > 1 ? 'dropped' : 'kept');
    const sites = await Promise.all(processes.map((server) => server.open(config, stage)));
    const targets = sites.map(({ url }, nth) => ({ name: String.fromCharCode(65 + nth), url }));
    const on = async (where: readonly Target[], more: Partial<Performance>): Promise<Column> => {
      const wire = await PlayWire.open(where);
      return play({ ...setting, wire, stage, ...more }).finally(() => wire.close());
    };
    let single: Promise<Site> | undefined;
    return {
      again: (more = {}) => on(targets, more),
      kept: async (more = {}) => {
        single ??= first.open(configOf(setting, 'kept'), stage);
        return on([{ name: 'A', url: (await single).url }], more);
      },
      close: () => stage.close(),
    };
  } catch (error) {
    await stage.close();
    throw error;
  }
}

type Move = 'close' | 'crash';

/** A version of a server, and where it runs. */
export interface RunningVersion {
  readonly version: Version;
  /** Started when a call first comes there. */
  readonly server: () => Promise<ServerProcess | undefined>;
}

/** When a call is moved to another process. */
export interface Moves {
  /** Before this answer goes out (`nth` counts from 1 in its step), and how: shut down or killed. */
  readonly atAnswer?: (step: number, nth: number) => Move | undefined;
  /** Whether the process is killed as soon as this entry of a journal is written (`nth` counts from 1). */
  readonly atEntry?: (entry: Entry, nth: number) => boolean;
}

/**
 * Plays the scenario so that calls continue in other processes than the one they began in.
 * @param path each call begins at the first; each move goes to the next, and from the last to another one like it
 */
export async function moving(
  setting: Setting,
  path: readonly RunningVersion[],
  moves: Moves,
): Promise<Column> {
  const stage = new Stage();
  const wire = await PlayWire.open([]);
  let at = 0;
  let site: Site | undefined;
  const enter = async (next: number): Promise<void> => {
    const place = path[next];
    const server = await place?.server();
    if (place === undefined || server === undefined) throw new RangeError('a call needs a process to run in');
    site = await server.open(configOf(setting, 'dropped', { lease: LEASE }), stage);
    at = next;
    wire.targets = [{ name: place.version.name, url: site.url }];
  };
  const leave = async (how: Move): Promise<void> => {
    const left = site;
    // Killed first, so that a dead process does not write while the next one starts.
    if (how === 'crash') await left?.crash();
    await enter(Math.min(at + 1, path.length - 1));
    if (how === 'close') await left?.close();
  };
  let entries = 0;
  let crashing = Promise.resolve();
  stage.store.onEntry = (entry) => {
    entries += 1;
    if (moves.atEntry?.(entry, entries)) crashing = leave('crash');
  };
  try {
    return await play({
      ...setting,
      wire,
      stage,
      beforeStep: async () => {
        if (site !== undefined && at === 0) return;
        const left = site;
        await enter(0);
        await left?.close();
      },
      beforeAnswer: async (step, nth) => {
        const how = moves.atAnswer?.(step, nth);
        if (how !== undefined) await leave(how);
      },
    });
  } finally {
    await crashing.catch(() => {});
    await wire.close();
    await stage.close();
  }
}

export function configOf(
  { revision, scenario }: Setting,
  frames: SiteConfig['frames'],
  limits: LimitOptions = {},
): Omit<SiteConfig, 'secret'> {
  return { revision, frames, capabilities: scenario.client?.capabilities ?? DEFAULT_CAPABILITIES, limits };
}
