/** Which client capability an ask needs (invariant 4: an ask goes out only if the current leg allows it). */

import { isObject, type JsonObject } from '../../base/json.ts';
import type { Response } from '../journal/entries.ts';

/** The methods by which a server asks inside of a call. */
export const ASK_METHODS: ReadonlySet<string> = new Set([
  'elicitation/create',
  'sampling/createMessage',
  'roots/list',
]);

/** The capabilities that `method` needs and `declared` lacks, in the shape a client declares them; else undefined. */
export function missingCapability(
  declared: JsonObject,
  method: string,
  params: JsonObject,
): JsonObject | undefined {
  const required = requiredCapability(method, params);
  return Object.entries(required).every(([name, parts]) => covers(declared, name, parts))
    ? undefined
    : required;
}

function requiredCapability(method: string, params: JsonObject): Record<string, JsonObject> {
  switch (method) {
    case 'elicitation/create':
      return { elicitation: { [params.mode === 'url' ? 'url' : 'form']: {} } };
    case 'sampling/createMessage':
      return { sampling: params.tools === undefined && params.toolChoice === undefined ? {} : { tools: {} } };
    case 'roots/list':
      return { roots: {} };
    default:
      return {};
  }
}

function covers(declared: JsonObject, name: string, parts: JsonObject): boolean {
  const capability = declared[name];
  if (!isObject(capability)) return false;
  // `elicitation: {}` means form mode, as it did before there were two.
  if (name === 'elicitation' && 'form' in parts && capability.form === undefined)
    return capability.url === undefined;
  return Object.keys(parts).every((part) => capability[part] !== undefined);
}

/** The response of a call whose tool asks something that its client did not declare a capability for. */
export function refusal(required: JsonObject, method: string): Response {
  return {
    error: {
      code: -32021,
      message: `Client does not support ${Object.keys(required).join(', ')} (required for ${method})`,
      data: { requiredCapabilities: required },
    },
  };
}
