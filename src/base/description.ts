/** What a client describes itself with: it is kept with each of its sessions and calls, so it is bounded. */
import { isObject, type JsonObject } from './values.ts';

/** Bytes of `clientInfo` and `capabilities` together, as JSON, without icons. */
export const MOST_DESCRIBED = 16_384;

const META = 'io.modelcontextprotocol';

/** Whether an `initialize`, or the `_meta` of a request of 2026-07-28, describes its client at too great a length. */
export function isTooLong(params: unknown): boolean {
  if (!isObject(params)) return false;
  const infos = [params.clientInfo, params[`${META}/clientInfo`]];
  const capabilities = [params.capabilities, params[`${META}/clientCapabilities`]];
  const described = JSON.stringify([
    infos.map((info) => (isObject(info) ? withoutIcons(info) : info)),
    capabilities,
  ]);
  return Buffer.byteLength(described) > MOST_DESCRIBED;
}

/** A `clientInfo` as it is kept: icons may be images of any size, and no server acts on them. */
export function withoutIcons(info: JsonObject): JsonObject {
  if (info.icons === undefined) return info;
  const { icons, ...rest } = info;
  return rest;
}
