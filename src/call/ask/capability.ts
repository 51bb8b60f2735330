/** Which client capability an ask needs (invariant 4: an ask goes out only if the current request allows it). */

import { ELICIT, isObject, type JsonObject } from '../../base/values.ts';
import { isForNobody, isForPerson } from '../frame/place.ts';
import type { Lack } from '../frame/turn.ts';
import type { Response } from '../journal/entries.ts';

/** The methods by which a server asks inside of a call. */
export const ASK_METHODS: ReadonlySet<string> = new Set([ELICIT, 'sampling/createMessage', 'roots/list']);

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

/** Why an ask cannot go out, with the error for the tool. @param hasPerson whether there is a page for it */
export function lackOf(
  declared: JsonObject,
  method: string,
  params: JsonObject,
  hasPerson: boolean,
): Lack | undefined {
  if (isForPerson(params)) {
    if (isForNobody(params)) return invalid("mcp-await/by must be 'person', and mcp-await/of a role's name");
    return hasPerson && method === ELICIT && params.mode !== 'url'
      ? undefined
      : invalid('A person must answer this form on the page of the option ask; this call has nobody there');
  }
  const required = missingCapability(declared, method, params);
  if (required === undefined) return undefined;
  if (method === ELICIT && isObject(declared.elicitation)) {
    const message = `Client does not support ${params.mode === 'url' ? 'URL' : 'form'}-mode elicitation requests`;
    return { required, ...invalid(message) };
  }
  return { required, response: { error: { code: -32601, message: lacks(required, method) } } };
}

function invalid(message: string): Lack {
  return { response: { error: { code: -32602, message } } };
}

function lacks(required: JsonObject, method: string): string {
  return `Client does not support ${Object.keys(required).join(', ')} (required for ${method})`;
}

/** The response of a call whose tool asks something that its client did not declare a capability for. */
export function refusal(required: JsonObject, method: string): Response {
  return {
    error: {
      code: -32021,
      message: lacks(required, method),
      data: { requiredCapabilities: required },
    },
  };
}
