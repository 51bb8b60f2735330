/**
 * How a client resumes its session on another pipe. It asks for that in the `_meta` of its `initialize`; then each
 * message of a stream carries the stream's position, and after a break the client sends `RESUME`, its requests that
 * have no response yet, and its answers again. `docs/websocket.md` specifies it.
 */

import { EVENT_META, REQUEST_META, SESSION_META, VERSION_META } from '../../base/resume-meta.ts';
import { isObject, type JsonObject } from '../../base/values.ts';

const OWN: ReadonlySet<string> = new Set([SESSION_META, VERSION_META, EVENT_META, REQUEST_META]);

function metaOf(message: JsonObject): JsonObject {
  const { params } = message;
  return isObject(params) && isObject(params._meta) ? params._meta : {};
}

export function wantsResume(initialize: JsonObject): boolean {
  return metaOf(initialize)[SESSION_META] === true;
}

/** @returns undefined when it names no session */
export function sessionOf(
  message: JsonObject,
):
  | { readonly session: string; readonly version: string | undefined; readonly standing: string | undefined }
  | undefined {
  const { [SESSION_META]: session, [VERSION_META]: version, [EVENT_META]: standing } = metaOf(message);
  if (typeof session !== 'string') return undefined;
  return {
    session,
    version: typeof version === 'string' ? version : undefined,
    standing: typeof standing === 'string' ? standing : undefined,
  };
}

export function lastEventOf(message: JsonObject): string | undefined {
  const { [EVENT_META]: event } = metaOf(message);
  return typeof event === 'string' ? event : undefined;
}

/** Removes the members that are for this package's two ends alone, before a server sees the message. */
export function withoutResume(message: JsonObject): JsonObject {
  const meta = metaOf(message);
  if (!Object.keys(meta).some((key) => OWN.has(key))) return message;
  const rest = Object.fromEntries(Object.entries(meta).filter(([key]) => !OWN.has(key)));
  const { _meta: _own, ...params } = message.params as JsonObject;
  return { ...message, params: { ...params, ...(Object.keys(rest).length > 0 && { _meta: rest }) } };
}

/** Adds the stream's position to a message. A response gets none: it ends its stream. */
export function withEvent(
  message: JsonObject,
  event: string,
  request: string | number | undefined,
): JsonObject {
  if (typeof message.method !== 'string') return message;
  const params = isObject(message.params) ? message.params : {};
  const _meta = {
    ...(isObject(params._meta) && params._meta),
    [EVENT_META]: event,
    ...(request !== undefined && { [REQUEST_META]: request }),
  };
  return { ...message, params: { ...params, _meta } };
}

/** The response to `initialize` names the session. */
export function withSession(message: JsonObject, session: string | undefined): JsonObject {
  const { result } = message;
  if (session === undefined || !isObject(result) || typeof result.protocolVersion !== 'string')
    return message;
  return {
    ...message,
    result: { ...result, _meta: { ...(isObject(result._meta) && result._meta), [SESSION_META]: session } },
  };
}
