/** A client of a play, whoever made it. */
import type { JsonObject } from '../base/values.ts';

/** Who calls. */
export interface PlayedCaller {
  readonly name: string;
  readonly capabilities: JsonObject;
  /** Sent as a bearer token; without one the caller is anonymous. */
  readonly token?: string;
}

export type OnAsk = (method: string, params: JsonObject) => Promise<JsonObject>;

export interface Player {
  /**
   * One request, with whatever is asked in its middle.
   * @throws an error with the `code` of the JSON-RPC error
   */
  request(method: string, params: JsonObject, timeout: number): Promise<JsonObject>;
  close(): Promise<void>;
}
