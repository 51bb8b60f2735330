/** What is kept of a step, and what a tool gets of it: the same bytes live and replayed (invariant 7). */
import { createHash } from 'node:crypto';
import { AwaitError } from '../error.ts';
import type { StepError, StepOutcome } from './journal.ts';
import { isJson, isObject, type Json } from './json.ts';

/** A hash of call id and step identity: the same on every attempt (invariant 13). */
export function idempotencyKey(callId: string, path: string): string {
  return createHash('sha256').update(`${callId}\n${path}`).digest('base64url');
}

/** What the journal keeps of a result. */
export function keepResult(value: unknown): StepOutcome {
  if (value === undefined) return {};
  if (!isJson(value)) return { lost: true };
  return { value: JSON.parse(JSON.stringify(value)) as Json };
}

/** What the journal keeps of a thrown value. */
export function keepError(thrown: unknown): StepOutcome {
  if (!(thrown instanceof Error)) return { error: { name: 'Error', message: String(thrown) } };
  const { code, data } = thrown as { code?: unknown; data?: unknown };
  return {
    error: {
      name: thrown.name,
      message: thrown.message,
      ...((typeof code === 'string' || typeof code === 'number') && { code }),
      ...(data !== undefined && isJson(data) && { data: JSON.parse(JSON.stringify(data)) as Json }),
    },
  };
}

/** Gives a kept outcome to the tool: returns the value, or throws. */
export function releaseOutcome(path: string, outcome: StepOutcome): unknown {
  if ('error' in outcome) throw revive(outcome.error);
  if ('lost' in outcome) {
    throw new AwaitError(
      'step-not-json',
      `The result of step '${path}' is no JSON, so it could not be kept; the step is done and will not run again. Return plain objects, arrays, strings, finite numbers, booleans or null from a step.`,
    );
  }
  // A tool may change what it got; what was kept must not change with it.
  return isObject(outcome.value) || Array.isArray(outcome.value)
    ? structuredClone(outcome.value)
    : outcome.value;
}

function revive(kept: StepError): Error {
  const error = new Error(kept.message);
  error.name = kept.name;
  return Object.assign(error, {
    ...(kept.code !== undefined && { code: kept.code }),
    ...(kept.data !== undefined && { data: kept.data }),
  });
}
