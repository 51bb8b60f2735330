/** The revisions that are served, one row each. Nothing outside of a revision's folder names it but its row. */
import type { KnownRevisions } from '../src/handler/revision-options.ts';
import type { Services } from '../src/handler/services.ts';
import { createEdge as httpSse } from './2024-11-05/edge.ts';
import { LIVE } from './2025/wire.ts';
import { createEdge as modern } from './2026-07-28/edge.ts';
import { roundTrips } from './mrtr/post.ts';
import { MRTR_DRAFT } from './mrtr-draft/wire.ts';
import type { Edges, RevisionRow } from './revision.ts';
import { MULTI_TURN } from './sep-1858/server.ts';
import { SEP_2322 } from './sep-2322/wire.ts';
import { createEdge as sessions } from './session/edge.ts';
import { createEdge as workspaces } from './workspace-sse/edge.ts';

/** Streamable HTTP with sessions. */
const SESSION = { era: 'legacy', paths: ['mcp'], negotiatedBy: 'initialize', edge: withSessions } as const;

/** Where several edges are on one path, the later one is asked first whether a request is its own. */
const REVISIONS = [
  {
    name: '2024-11-05',
    era: 'legacy',
    paths: ['sse', 'messages'],
    negotiatedBy: 'initialize',
    asks: 'live',
    can: [],
    edge: httpSse,
  },
  { ...SESSION, name: '2025-03-26', asks: 'live', can: ['batches'], wire: LIVE },
  { ...SESSION, name: '2025-06-18', asks: 'live', can: [], wire: LIVE },
  { ...SESSION, name: '2025-11-25', asks: 'live', can: ['tasks', 'primes'], wire: LIVE },
  {
    ...SESSION,
    name: 'DRAFT-SEP-1858',
    asks: 'rounds',
    can: [],
    needsStore: true,
    options: ['literal'],
    wire: MULTI_TURN,
  },
  {
    ...SESSION,
    name: 'DRAFT-MRTR-2026-02',
    asks: 'rounds',
    can: ['tasks', 'primes', 'asks-in-responses'],
    wire: roundTrips(MRTR_DRAFT),
  },
  {
    ...SESSION,
    name: 'DRAFT-SEP-2322',
    asks: 'rounds',
    can: ['tasks', 'primes', 'asks-in-responses'],
    wire: roundTrips(SEP_2322),
  },
  {
    name: '2026-07-28',
    era: 'modern',
    paths: ['mcp'],
    negotiatedBy: 'each request',
    asks: 'rounds',
    can: ['tasks'],
    edge: modern,
  },
  {
    name: 'workspace-sse',
    era: 'legacy',
    paths: ['workspace'],
    negotiatedBy: 'path',
    asks: 'live',
    can: [],
    options: ['capabilities'],
    edge: workspaces,
  },
] as const satisfies readonly RevisionRow[];

/** The name of a revision, as the option `revisions` takes it. */
export type Revision = (typeof REVISIONS)[number]['name'];

/** As the option `revisions` names them, the oldest first. */
export const NAMES: readonly Revision[] = REVISIONS.map(({ name }) => name);

function withSessions(services: Services): Edges {
  const wires = [...TABLE.values()].flatMap(({ name, wire }) =>
    wire === undefined ? [] : [[name, wire] as const],
  );
  return sessions(services, new Map(wires));
}

/** By name. */
export const TABLE: ReadonlyMap<string, RevisionRow> = new Map(REVISIONS.map((row) => [row.name, row]));

/** As the option `revisions` takes them. */
export const KNOWN: KnownRevisions = {
  names: NAMES,
  stored: REVISIONS.flatMap((row) => ('needsStore' in row ? [row.name] : [])),
  options: new Map([...TABLE].map(([name, { options = [] }]) => [name, options])),
};
