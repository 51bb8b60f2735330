/** Reads a scenario: YAML (and so JSON) with the lines of its mistakes, or a TypeScript module. */
import { readFile } from 'node:fs/promises';
import { importPeer } from '../base/peer.ts';
import { type AwaitError, isObject, optionError } from '../base/values.ts';
import { importModule } from '../cli/load.ts';
import type { Scenario } from './scenario.ts';

export interface ReadScenario {
  readonly scenario: Scenario;
  /** The line of a step, from 1; unknown in a module. */
  readonly lineOf: (step: number) => number | undefined;
}

/** @throws AwaitError `bad-option` with the mistake and its line */
export async function readScenario(path: string): Promise<ReadScenario> {
  if (/\.[cm]?[jt]sx?$/.test(path))
    return { scenario: await checked(await importModule(path), path), lineOf: () => undefined };
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw optionError(`the scenario ${path} cannot be read: ${String(error)}`, error);
  }
  return parseScenario(text, path);
}

/** @param path for messages */
async function parseScenario(text: string, path: string): Promise<ReadScenario> {
  const { LineCounter, parseDocument } = await importPeer('yaml', () => import('yaml'));
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const lineAt = (keys: readonly PropertyKey[]): number | undefined => {
    // An error about a missing member names the place where it should be.
    for (let length = keys.length; length >= 0; length -= 1) {
      const node: unknown = length === 0 ? document.contents : document.getIn(keys.slice(0, length), true);
      const range = isObject(node) && Array.isArray(node.range) ? node.range : undefined;
      if (range !== undefined) return lines.linePos(Number(range[0])).line;
    }
    return undefined;
  };
  const [broken] = document.errors;
  if (broken !== undefined) throw wrong(path, broken.linePos?.[0].line, broken.message.split('\n')[0] ?? '');
  const scenario = await checked(document.toJS(), path, lineAt);
  return { scenario, lineOf: (step) => lineAt(['steps', step]) };
}

/**
 * A scenario in TypeScript: types do not see a member that is misspelt in an object that was made elsewhere.
 *
 * @throws AwaitError `bad-option` with the mistake
 */
export async function checkScenario(scenario: Scenario): Promise<void> {
  await checked(scenario, 'the scenario');
}

async function checked(
  value: unknown,
  path: string,
  lineAt: (keys: readonly PropertyKey[]) => number | undefined = () => undefined,
): Promise<Scenario> {
  const { scenarioSchema } = await importPeer('zod', () => import('./scenario-schema.ts'));
  const read = scenarioSchema.safeParse(value);
  if (!read.success) {
    const [issue] = read.error.issues;
    const keys = issue?.path ?? [];
    const where = keys.length === 0 ? '' : `${keys.map(String).join('.')}: `;
    throw wrong(path, lineAt(keys), `${where}${issue?.message ?? 'no scenario'}`);
  }
  for (const pattern of read.data.ignore ?? []) {
    try {
      new RegExp(pattern);
    } catch (error) {
      throw wrong(path, lineAt(['ignore']), `${pattern} is no regular expression (${String(error)})`);
    }
  }
  return read.data;
}

function wrong(path: string, line: number | undefined, why: string): AwaitError {
  return optionError(`${path}${line === undefined ? '' : `, line ${line}`}: ${why}`);
}
