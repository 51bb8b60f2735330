/**
 * An ask's identity is its place in the call (invariant 5): its author's explicit key, else its method and shape, with
 * its ordinal in that class. Never a global ordinal: a tool that asks one thing less after an upgrade must not shift
 * the answers of all later asks.
 */
import { digest } from '../../base/digest.ts';
import { defined, ELICIT, isObject, type JsonObject } from '../../base/values.ts';

/** The `_meta` entry by which a tool of any language names an ask's key. */
export const KEY_META = 'mcp-await/key';

const BY = 'mcp-await/by';
const OF = 'mcp-await/of';

/** Whether a person has to answer an ask on the page, also where the client could be asked. */
export function isForPerson({ _meta: meta }: JsonObject): boolean {
  return isObject(meta) && (meta[BY] !== undefined || meta[OF] !== undefined);
}

/** Whether an ask for a person names none: such a value has no meaning. */
export function isForNobody(params: JsonObject): boolean {
  const by = (params._meta as JsonObject)[BY];
  return roleOf(params) === '' || (by !== undefined && by !== 'person');
}

/** The role that somebody needs to answer an ask; `''`, which no person has, for a value that is not a string. */
export function roleOf({ _meta: meta }: JsonObject): string | undefined {
  const role = isObject(meta) ? meta[OF] : undefined;
  return role === undefined || typeof role === 'string' ? role : '';
}

/** How the class of an ask begins whose author gave it a key; and of one that is passed on for another call. */
const KEYED = 'key:';
const PASSED_ON = 'key@';
const AUTHORS = /^key(?:@[\w-]+)?:(.*)$/s;

export interface Question {
  /** The part that asks of the same class share. */
  readonly class: string;
  readonly explicitKey?: string;
  readonly method: string;
  /** The params as they go out. */
  readonly params: JsonObject;
  /** Digest of the whole question. */
  readonly digest: string;
}

/** Keys that replace an object's prototype where they name a property, or that a browser changes when it sends a form. */
const ODD = /^__proto__$|[\p{Cc}\p{Cs}]/u;

/** Reads an ask's identity off its request, and takes this package's own `_meta` entry out of it. */
export function questionOf(method: string, rawParams: unknown): Question {
  const params = isObject(rawParams) ? { ...rawParams } : {};
  let explicitKey: string | undefined;
  if (isObject(params._meta)) {
    const { [KEY_META]: key, progressToken: _token, ...meta } = params._meta;
    if (typeof key === 'string' && key !== '') explicitKey = ODD.test(key) ? digest(key) : key;
    if (Object.keys(meta).length > 0) params._meta = meta;
    else delete params._meta;
  }
  // `elicitationId` is new on every run of a tool and does not identify the question.
  const { elicitationId: _id, _meta: _ignored, requestedSchema, ...text } = params;
  const schema = digestOfSchema(requestedSchema);
  return {
    class: classFor(explicitKey, method, params, schema),
    ...defined({ explicitKey }),
    method,
    params,
    digest: digest([method, text, schema]),
  };
}

function classFor(key: string | undefined, method: string, params: JsonObject, schema: string): string {
  // One that a person alone may answer gets no answer that a client gave, nor somebody with another role.
  const whose = isForPerson(params) ? `:person ${roleOf(params) ?? ''}` : '';
  if (key !== undefined) return whose === '' ? `${KEYED}${key}` : `${PASSED_ON}${digest(whose)}:${key}`;
  if (method !== ELICIT) return method;
  return params.mode === 'url' ? `${method}:url${whose}` : `${method}:form:${schema}${whose}`;
}

/** Digests by schema object, since a tool's schemas are usually constants. */
const digests = new WeakMap<object, string>();

function digestOfSchema(schema: unknown): string {
  if (!isObject(schema)) return digest(schema);
  let known = digests.get(schema);
  if (known === undefined) {
    known = digest(schema);
    digests.set(schema, known);
  }
  return known;
}

/**
 * The key of an ask on the wire: a tool's own key as it is the first time, else a short word. `count` is the
 * call's running number of asks, which makes every further key unique for the life of the call.
 */
export function wireKey(question: Question, nth: number, count: number, again: boolean): string {
  const base = question.explicitKey ?? `${question.method.split('/')[0]}-${count}`;
  return question.explicitKey !== undefined && (again || nth > 1) ? `${base}~${count}` : base;
}

/** The key under which an ask goes out again after an unusable answer. */
export function nextKey(key: string, count: number): string {
  return `${key.replace(/~\d+$/, '')}~${count}`;
}

/** The key that an ask's author gave it: only the first ask of a key goes out under it. */
export function authorsKeyOf(place: string): string | undefined {
  return nthOf(place) === 1 ? AUTHORS.exec(classOf(place))?.[1] : undefined;
}

/** An ask that a request passes on for another call: what two calls ask under one key are two questions. */
export function askedFor(callId: string, question: Question): Question {
  const { explicitKey = '' } = question;
  return { ...question, class: `${PASSED_ON}${digest(callId)}:${explicitKey}` };
}

/** The class of a place. */
export function classOf(place: string): string {
  return place.slice(0, place.lastIndexOf('#'));
}

/** The ordinal of a place in its class. */
export function nthOf(place: string): number {
  return Number(place.slice(place.lastIndexOf('#') + 1));
}
