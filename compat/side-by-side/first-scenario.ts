/** Generates a server's first scenario from its own tools, prompts and resources and their schemas. */
import { isObject, type JsonObject } from '../../src/base/json.ts';
import { NAMES, type Revision, TABLE } from '../revisions.ts';
import { speakerOf } from './clients.ts';
import { DEFAULT_CAPABILITIES, type Scenario, type Step } from './scenario.ts';
import type { ServerProcess } from './server-process.ts';
import { Stage } from './stage.ts';
import { filledIn, valueFor } from './user.ts';
import { Wire } from './wire.ts';

/** The newest revision with sessions whose asks are live, since servers show most of their features there. */
const REVISION = NAMES.findLast((name) => {
  const row = TABLE.get(name);
  return row?.negotiatedBy === 'initialize' && row.asks === 'live';
}) as Revision;
const PATIENCE = 20_000;

/** A scenario that calls each tool once, and the list of tools that it is made from. */
export interface FirstScenario {
  readonly scenario: Scenario;
  readonly tools: readonly JsonObject[];
}

export async function firstScenario(server: ServerProcess): Promise<FirstScenario> {
  const stage = new Stage();
  const site = await server.open(
    { revision: REVISION, frames: 'kept', capabilities: DEFAULT_CAPABILITIES },
    stage,
  );
  const wire = await Wire.open([{ name: 'A', url: site.url }]);
  try {
    const who = { name: 'side-by-side', capabilities: DEFAULT_CAPABILITIES };
    const player = await speakerOf(REVISION)
      .open(wire.url, who, async () => ({ roots: [] }))
      .catch((error: unknown) => {
        throw stage.refused(REVISION, error);
      });
    // A server without any of a kind responds that the method is unknown.
    const listed = async (kind: 'tools' | 'prompts' | 'resources'): Promise<JsonObject[]> => {
      const result = await player.request(`${kind}/list`, {}, PATIENCE).catch((): JsonObject => ({}));
      return Array.isArray(result[kind]) ? result[kind].filter(isObject) : [];
    };
    const tools = await listed('tools');
    const prompts = await listed('prompts');
    const [resource] = await listed('resources');
    await player.close();
    const steps: Step[] = [
      { list: 'tools' },
      ...tools.map(callOf),
      ...(prompts.length > 0 ? [{ list: 'prompts' } as const] : []),
      ...prompts.map(promptOf),
      ...(resource === undefined ? [] : [{ list: 'resources' } as const, { read: String(resource.uri) }]),
      // Listed again: shows whether tools that a call registers appear.
      { list: 'tools' },
    ];
    return { scenario: { name: 'every tool once, its forms filled in from their schemas', steps }, tools };
  } finally {
    await wire.close();
    await stage.close();
  }
}

function callOf({ name, inputSchema }: JsonObject): Step {
  const schema = isObject(inputSchema) ? inputSchema : {};
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
