/** The names of the records beside the log of a call that waits for a person. */
import { roleOf } from '../call/frame/place.ts';
import type { Entry } from '../call/journal/entries.ts';

/** A row of equal calls, an idempotency key, or a request that may come again. */
export const ROW = /^\w+\.equal\.|:sent:/;
/** An answer's record. When a call is erased, a mark takes its place. */
export const ANSWER = /^\S*:answer /;
/** How long an outcome is sent again, in milliseconds after it was sent first. */
export const REPEATED = 600_000;

export const personName = (callId: string): string => `${callId}:person`;
/** The page has asked something of it, or was answered. */
export const pageName = (callId: string): string => `${callId}:page`;
export const stoppedName = (callId: string): string => `${callId}:stopped`;
export const sentName = (callId: string): string => `${callId}:sent`;
export const answerName = (callId: string, key: string): string => `${callId}:answer ${key}`;
export const askedName = (callId: string, key: string): string => `${callId}:asked ${key}`;
/** Of a request's own call. */
export const continuesName = (callId: string): string => `${callId}:continues`;
export const doubtName = (callId: string, key: string): string => `${callId}:doubt ${key}`;
export const roleName = (callId: string, role: string): string => `${callId}:role ${role}`;

/** All of them that a call may have. */
export function pageRecords(callId: string, entries: readonly Entry[]): string[] {
  const asks = entries.flatMap((entry) => (entry.type === 'suspended' ? entry.checkpoint.open : []));
  if (asks.length === 0) return [];
  const answers = new Set(
    asks.flatMap(({ key }) => [answerName(callId, key), askedName(callId, key), doubtName(callId, key)]),
  );
  const roles = new Set(asks.map(({ params }) => roleName(callId, roleOf(params) ?? '')));
  const names = [personName, pageName, stoppedName, sentName].map((name) => name(callId));
  return [...names, ...answers, ...roles];
}
