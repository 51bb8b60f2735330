/**
 * Ids of streams and of their events. A stream's id holds its expiry and 128 random bits; an event's is
 * `{streamId}_{sequence}`.
 * Records are stored under a digest of id and scope, so an id that is used with another session or caller leads to
 * records that do not exist: a foreign stream and an unknown one take the same path.
 */
import { randomBytes } from 'node:crypto';
import { sha256 } from '../base/digest.ts';
import { type AwaitError, badToken } from '../base/values.ts';

/** A position in a stream. */
export interface EventPlace {
  readonly stream: string;
  /** From 1. Not every number is an event's. */
  readonly sequence: number;
  /** Where an entry is several events, the number of one that is not the last. */
  readonly nth?: number;
}

export function newStreamId(expires: number): string {
  return `${Math.ceil(expires).toString(36)}.${randomBytes(16).toString('base64url')}`;
}

/** The id of the stream's one call, if it has one: the same bits, in the form of calls' ids. */
export function callIdOf(stream: string): string {
  const dot = stream.indexOf('.') + 1;
  const hex = Buffer.from(stream.slice(dot), 'base64url').toString('hex');
  return `${stream.slice(0, dot)}${hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')}`;
}

/** The id of a stream of one call alone: the same bits, written as streams' ids are. */
export function streamIdOf(callId: string): string {
  const dot = callId.indexOf('.') + 1;
  const bytes = Buffer.from(callId.slice(dot).replaceAll('-', ''), 'hex');
  return `${callId.slice(0, dot)}${bytes.toString('base64url')}`;
}

/** A new stream that each process may append to. */
export function sharedId(expires: number): string {
  return `${Math.ceil(expires).toString(36)}.~${randomBytes(16).toString('base64url')}`;
}

/** The one stream of a scope that every process finds by itself; `~` is in the ids that processes share, and in no other. */
export function standingId(scope: string, expires: number): string {
  return `${Math.ceil(expires).toString(36)}.~${digest('standing', scope)}`;
}

export function isStandingId(id: string): boolean {
  return id.includes('~');
}

export function eventId(stream: string, sequence: number): string {
  return `${stream}_${sequence}`;
}

/** @returns undefined if it is not an event id of ours, or longer than `longest` characters */
export function parseEventId(id: string, longest: number): EventPlace | undefined {
  if (id.length > longest) return undefined;
  const match = /^([0-9a-z]{1,11}\.~?[\w-]{22})_([1-9]\d{0,11})(?:\.([1-9]\d{0,5}))?$/.exec(id);
  if (match?.[1] === undefined) return undefined;
  const nth = match[3] === undefined ? {} : { nth: Number(match[3]) };
  return { stream: match[1], sequence: Number(match[2]), ...nth };
}

/** How far a client is in each log of a batch; 0 where it has nothing. */
export type BatchPlaces = readonly Pick<EventPlace, 'sequence' | 'nth'>[];

/** The id of an event of a batch: how far its client is then in each call. */
export function batchEventId(stream: string, places: BatchPlaces): string {
  return `${stream}_${places.map(({ sequence, nth }) => (nth ? `${sequence}.${nth}` : sequence)).join('-')}`;
}

/**
 * @param most requests of a batch
 * @returns undefined if it is not the event id of a batch, or longer than `longest` characters
 */
export function parseBatchId(
  id: string,
  longest: number,
  most: number,
): { readonly stream: string; readonly places: BatchPlaces } | undefined {
  if (id.length > longest) return undefined;
  const match = /^([0-9a-z]{1,11}\.[\w-]{22})_((?:\d{1,12}(?:\.\d{1,6})?-)+\d{1,12}(?:\.\d{1,6})?)$/.exec(id);
  if (match?.[1] === undefined || match[2] === undefined) return undefined;
  const places = match[2].split('-').map((place) => {
    const [sequence = 0, nth] = place.split('.').map(Number);
    return nth === undefined ? { sequence } : { sequence, nth };
  });
  return places.length > most ? undefined : { stream: match[1], places };
}

/** Calls that an event's id can name. With more it has none, and its client comes back with an earlier one. */
export const MOST_NAMED = 100;

/** How far a client is in a stream that names calls, and in each of these that is not over. */
export interface LastingPlace {
  /** What the ids of its events begin with. */
  readonly prefix: string;
  /** In the stream itself; 0 before its first entry. */
  readonly sequence: number;
  /** By the calls' ids; their sequence is 0 where it has nothing. */
  readonly calls: ReadonlyMap<string, Pick<EventPlace, 'sequence' | 'nth'>>;
}

/** The id of an event of such a stream: where its client is then. */
export function lastingEventId({ prefix, sequence, calls }: LastingPlace): string {
  let id = `${prefix}_${sequence}`;
  for (const [callId, place] of calls)
    id += `~${streamIdOf(callId)}_${place.sequence}${place.nth ? `.${place.nth}` : ''}`;
  return id;
}

const LASTING =
  /^([0-9a-z]{1,11}\.(?:~[\w-]{22}|[0-9a-f-]{36}))_(0|[1-9]\d{0,11})((?:~[0-9a-z]{1,11}\.[\w-]{22}_\d{1,12}(?:\.\d{1,6})?)*)$/;

/** @returns undefined if it is not the event id of such a stream, or longer than `longest` characters */
export function parseLastingId(id: string, longest: number): LastingPlace | undefined {
  const [, prefix, sequence, rest = ''] = (id.length > longest ? null : LASTING.exec(id)) ?? [];
  if (prefix === undefined) return undefined;
  const calls = new Map<string, Pick<EventPlace, 'sequence' | 'nth'>>();
  for (const [, stream = '', at, nth] of rest.matchAll(/~([^~]{24,34})_(\d+)(?:\.(\d+))?/g))
    calls.set(callIdOf(stream), { sequence: Number(at), ...(nth !== undefined && { nth: Number(nth) }) });
  return calls.size > MOST_NAMED ? undefined : { prefix, sequence: Number(sequence), calls };
}

/** The id of a call of a batch. @param nth its position among the requests, from 0 */
export function callOfBatch(stream: string, nth: number): string {
  const expires = stream.slice(0, stream.indexOf('.'));
  return callIdOf(`${expires}.${digest('batch', stream, String(nth))}`);
}

/** A stream's expiry, in milliseconds since the epoch; NaN if the id is malformed. */
export function expiryOf(id: string): number {
  const match = /^([0-9a-z]{1,11})\.~?[\w-]{22}$/.exec(id);
  return match?.[1] === undefined ? Number.NaN : Number.parseInt(match[1], 36);
}

/** The name of a stream's records; it begins with the expiry, for the sweeper. */
export function recordsName(id: string, scope: string): string {
  return `${id.slice(0, id.indexOf('.'))}.${digest(id, scope)}`;
}

/** One sentence for whatever is wrong with an id (unknown, expired, pruned, foreign); the cause is for the logger. */
export function unknownEvent(reason: string): AwaitError {
  return badToken('Invalid or expired Last-Event-ID', new Error(reason));
}

function digest(...parts: readonly string[]): string {
  return sha256(JSON.stringify(parts)).slice(0, 22);
}
