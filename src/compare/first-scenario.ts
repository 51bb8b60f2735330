/** Generates a server's first scenario from its own tools, prompts and resources and their schemas. */

import { isObject, type JsonObject } from '../base/values.ts';
import { speakerOf } from './clients.ts';
import { NEWEST_LIVE } from './newest.ts';
import { PATIENCE } from './play.ts';
import { DEFAULT_CAPABILITIES, type Scenario, type Step } from './scenario.ts';
import type { ServerProcess } from './server-process.ts';
import { Stage } from './stage.ts';
import { filledIn, valueFor } from './user.ts';
import { PlayWire } from './wire.ts';

/** A scenario that calls each tool once, and the list of tools that it is made from. */
export interface FirstScenario {
  readonly scenario: Scenario;
  readonly tools: readonly JsonObject[];
  /** Names of tools that it does not call. */
  readonly uncalled: readonly string[];
}

/** @param isAll whether tools that are not marked `readOnlyHint` are called too: they may act for real */
export async function firstScenario(server: ServerProcess, isAll: boolean): Promise<FirstScenario> {
  const stage = new Stage();
  const site = await server.open(
    { revision: NEWEST_LIVE, frames: 'kept', capabilities: DEFAULT_CAPABILITIES },
    stage,
  );
  const wire = await PlayWire.open([{ name: 'A', url: site.url }]);
  try {
    const who = { name: 'side-by-side', capabilities: DEFAULT_CAPABILITIES };
    const opening = speakerOf(NEWEST_LIVE).open(wire.url, who, async () => ({ roots: [] }));
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
