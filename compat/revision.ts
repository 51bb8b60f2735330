/** A revision of MCP as the handler sees it: a row of the table, and the edge that serves it. */
import type { Inbound, Reply } from '../src/doors/http/exchange.ts';
import type { Place } from '../src/doors/http/paths.ts';
import type { RevisionOptions } from '../src/handler/revision-options.ts';
import type { Services } from '../src/handler/services.ts';
import type { RevisionFacts } from './revision-facts.ts';
import type { SessionWire } from './session/wire.ts';

export interface RevisionRow extends RevisionFacts {
  /** Where its requests come in. */
  readonly paths: readonly Place['wire'][];
  /** How a client chooses it. */
  readonly negotiatedBy: 'initialize' | 'each request' | 'path';
  /** `live`: asks go out while their call runs. `rounds`: they end its turn. */
  readonly asks: 'live' | 'rounds';
  /** Whether a call's next request has no token that could carry the call: its processes share a store. */
  readonly needsStore?: true;
  /** The options that it has in the option `revisions`. */
  readonly options?: readonly (keyof RevisionOptions)[];
  /** Makes its edge; rows with the same function share one. */
  readonly edge: (services: Services) => Edges;
  /** How its sessions speak, where several revisions share the edge. */
  readonly wire?: SessionWire;
}

export type Edges = Partial<Record<Place['wire'], Edge>>;

/** Serves a path; methods that are absent are not allowed there. */
export interface Edge {
  /** @returns undefined for a body that is another edge's on this path */
  post?(inbound: Inbound, body: unknown, place: Place): Promise<Reply> | undefined;
  get?(inbound: Inbound, place: Place): Promise<Reply>;
  end?(inbound: Inbound): Promise<Reply>;
  /** Refuses a body that no edge of the path serves. */
  refuse?(inbound: Inbound, body: unknown): Promise<Reply>;
  /** Whether a request is this edge's by its headers alone. */
  owns?(inbound: Inbound): boolean;
  /** Ends streams that another process can serve; what comes in is served on. */
  leave?(): Promise<void>;
  close?(): Promise<void> | void;
}
