/**
 * The recorded form of a step's outcome, and the outcome that a tool gets: the same bytes live and replayed (invariant
 * 7).
 */
import { sha256 } from '../../base/digest.ts';
import { AwaitError, defined, isJson, isObject, type Json } from '../../base/values.ts';
import type { StepError, StepOutcome } from '../journal/entries.ts';

/** A hash of call id and step identity: the same on every attempt (invariant 13). */
export function idempotencyKey(callId: string, path: string): string {
  return sha256(`${callId}\n${path}`);
}

/**
 * Objects nested deeper than this are not recorded: stores serialize recursively, and a step that is done must not fail
 * there.
 */
const DEEPEST = 500;

/** The recorded form of a result: its copy through JSON, or that it is not JSON. Never throws. */
export function keepResult(value: unknown): StepOutcome {
  if (value === undefined) return {};
  const copy = copyOf(value);
  return copy === undefined ? { lost: true } : { value: copy };
}

/**
 * The recorded form of a thrown value: `name`, `message`, a `code` that is a string or a finite number, and a `data`
 * that is JSON. Never throws: a step whose error could not be recorded would run again at each retry.
 */
export function keepError(thrown: unknown): StepOutcome {
  const message = read(thrown, 'message');
  const code = read(thrown, 'code');
  const data = copyOf(read(thrown, 'data'));
  const isNumber = typeof code === 'number' && Number.isFinite(code);
  return {
    error: {
      name: textOf(read(thrown, 'name')) ?? 'Error',
      message: textOf(message) ?? textOf(thrown) ?? 'a value that cannot be read was thrown',
      // JSON has no -0.
      ...((typeof code === 'string' || isNumber) && { code: code === 0 ? 0 : code }),
      ...(data !== undefined && { data }),
    },
  };
}

/** The value's copy through JSON; undefined when it is not JSON, or a getter or a trap of it throws. */
function copyOf(value: unknown): Json | undefined {
  try {
    if (!isJson(value, DEEPEST)) return undefined;
    return JSON.parse(JSON.stringify(value)) as Json;
  } catch {
    return undefined;
  }
}

/** A property of any value at all; undefined when it has none, or reading it throws. */
function read(value: unknown, name: string): unknown {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return undefined;
  try {
    return Reflect.get(value, name);
  } catch {
    return undefined;
  }
}

/** Undefined for undefined, and for values without a text: an object without a prototype, a revoked proxy. */
function textOf(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  try {
    return String(value);
  } catch {
    return undefined;
  }
}

/** Gives a kept outcome to the tool: returns the value, or throws. */
export function releaseOutcome(path: string, outcome: StepOutcome): unknown {
  if ('error' in outcome) throw revive(outcome.error);
  if ('lost' in outcome) {
    throw new AwaitError(
      'step-not-json',
      `The result of step '${path}' is not JSON, so it could not be recorded; the step is done and will not run again. Return plain JSON from a step.`,
    );
  }
  // A copy, so that the tool cannot change the record.
  return isObject(outcome.value) || Array.isArray(outcome.value)
    ? structuredClone(outcome.value)
    : outcome.value;
}

function revive(kept: StepError): Error {
  const error = new Error(kept.message);
  error.name = kept.name;
  return Object.assign(error, {
    ...defined({ code: kept.code, data: kept.data }),
  });
}
