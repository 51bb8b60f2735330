/**
 * One schema validator for all server instances. Every SDK v1 server builds an Ajv of its own and compiles
 * each asked schema anew: measured, that was a third of the busy time of an adapter that makes an instance
 * a call.
 */

import type { SchemaCheck } from '../call/answer.ts';
import { keepNewest } from '../call/bounded.ts';
import { canonical, type JsonObject } from '../call/json.ts';
import type { LowLevel } from './intercept.ts';

type Verdict = { valid: boolean; data?: unknown; errorMessage?: string | undefined };
type Validate = (value: unknown) => Verdict;

/** An SDK's `jsonSchemaValidator`. */
interface Validator {
  getValidator(schema: JsonObject): Validate;
}

/** Compiled schemas kept. */
const KEPT = 500;

/** Compiles each schema once, and keeps the most recently used. */
export class CachingValidator implements Validator {
  readonly #inner: Validator;
  readonly #byIdentity = new WeakMap<JsonObject, Validate>();
  readonly #byText = new Map<string, Validate>();

  constructor(inner: Validator) {
    this.#inner = inner;
  }

  getValidator(schema: JsonObject): Validate {
    let validate = this.#byIdentity.get(schema);
    if (validate !== undefined) return validate;
    const text = canonical(schema);
    validate = this.#byText.get(text) ?? this.#inner.getValidator(schema);
    this.#byText.delete(text);
    this.#byText.set(text, validate);
    keepNewest(this.#byText, KEPT);
    this.#byIdentity.set(schema, validate);
    return validate;
  }
}

/** A check that takes a schema nobody can compile for one that anything keeps: the tool's SDK will say so. */
export function schemaCheck(validator: Validator): SchemaCheck {
  return (schema, value) => {
    try {
      return validator.getValidator(schema)(value).valid;
    } catch {
      return true;
    }
  };
}

const caches = new Map<unknown, CachingValidator>();

/** Lets servers that use their SDK's default validator share one of its kind. */
export function shareValidator(server: LowLevel): void {
  const holder = server as unknown as { _jsonSchemaValidator?: Validator };
  const own = holder._jsonSchemaValidator;
  if (own === undefined || own instanceof CachingValidator) return;
  const kind = own.constructor;
  // A validator that its author passed in may be anything; the SDKs' own are these.
  if (!/^(Ajv|CfWorker|Default)JsonSchemaValidator$/.test(kind.name)) return;
  let shared = caches.get(kind);
  if (shared === undefined) {
    shared = new CachingValidator(own);
    caches.set(kind, shared);
  }
  holder._jsonSchemaValidator = shared;
}
