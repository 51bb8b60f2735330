/**
 * One schema validator for all server instances. Every SDK v1 server builds an Ajv of its own and compiles
 * each asked schema anew: measured, that was a third of the busy time of an adapter that makes an instance
 * a call.
 */

import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv';
import { CfWorkerJsonSchemaValidator } from '@modelcontextprotocol/server/validators/cf-worker';
import { canonical, isPerRequest, type JsonObject, keepNewest } from '../base/values.ts';
import { makeLinear, patternsOf, withoutPatterns } from './linear.ts';
import type { LowLevel } from './protocol.ts';

type Verdict = { valid: boolean; data?: unknown; errorMessage?: string | undefined };
type Validate = (value: unknown) => Verdict;

/** An SDK's `jsonSchemaValidator`. */
export interface Validator {
  getValidator(schema: JsonObject): Validate;
}

/** Compiled schemas kept, and those among them that need a validator of their own. */
const KEPT = 500;
const OWN_KEPT = 25;

/**
 * Compiles each schema once, and keeps the most recently used; patterns are compiled in linear time.
 *
 * An Ajv keeps all that it ever compiled, 5 KB each, by the schema's identity. So after `KEPT` schemas it is replaced,
 * and the old one is collected with all that it compiled.
 */
export class CachingValidator implements Validator {
  readonly #make: () => Validator;
  #inner: Validator;
  #byIdentity = new WeakMap<JsonObject, Validate>();
  #byText = new Map<string, Validate>();
  #compiled = 0;
  /** An empty schema of each dialect, the same each time: Ajv keeps them too. */
  readonly #bare = new Map<unknown, JsonObject>();

  /** @param make a validator of an SDK; called again now and then */
  constructor(make: () => Validator) {
    this.#make = make;
    this.#inner = make();
  }

  getValidator(schema: JsonObject): Validate {
    let validate = this.#byIdentity.get(schema);
    if (validate !== undefined) return validate;
    const text = canonical(schema);
    validate = this.#byText.get(text) ?? this.#compile(schema, text);
    this.#byText.delete(text);
    this.#byText.set(text, validate);
    keepNewest(this.#byText, KEPT);
    this.#byIdentity.set(schema, validate);
    return validate;
  }

  /** Ajv knows schemas by their ids, and returns the first that it compiled for one: no id may reach the shared one. */
  #compile(schema: JsonObject, text: string): Validate {
    const { $id, ...nameless } = schema;
    const own = $id === undefined ? '"$id"' : canonical(nameless);
    // It means the same without its own id: none is inside of it, and all its references are.
    if (!own.includes('"$id"') && !/"\$(?:dynamicRef|ref)":"[^#]/.test(own))
      return this.getValidator(nameless);
    if (this.#compiled >= KEPT) {
      this.#inner = this.#make();
      this.#byIdentity = new WeakMap();
      this.#byText = new Map();
      this.#compiled = 0;
    }
    const isShared = !text.includes('"$id"');
    this.#compiled += isShared ? 1 : KEPT / OWN_KEPT;
    const inner = isShared ? this.#inner : this.#make();
    // An SDK makes the Ajv of a dialect when it first meets one.
    const { $schema } = schema;
    const bare = this.#bare.get($schema) ?? ($schema === undefined ? {} : { $schema });
    inner.getValidator(bare);
    this.#bare.set($schema, bare);
    makeLinear(inner);
    return inner.getValidator(schema);
  }
}

/**
 * Evaluates schemas without generating code. It knows no engine but the one that backtracks, and compares each item with
 * each, so its patterns and unique items are checked here.
 */
export class PlainValidator implements Validator {
  readonly #inner: Validator;

  constructor(inner: Validator) {
    this.#inner = inner;
  }

  getValidator(schema: JsonObject): Validate {
    const validate = this.#inner.getValidator(withoutPatterns(schema));
    const matches = patternsOf(schema);
    if (matches === undefined) return validate;
    return (value) => {
      const verdict = validate(value);
      if (!verdict.valid || matches(value)) return verdict;
      return { valid: false, errorMessage: 'must match a pattern, or have no duplicate items' };
    };
  }
}

/** A validator that compiles schemas; on a runtime without `eval`, one that interprets them. */
export function compilingValidator(make: () => Validator): () => Validator {
  return isPerRequest() ? evaluatingValidator : make;
}

export function evaluatingValidator(): Validator {
  return new PlainValidator(new CfWorkerJsonSchemaValidator());
}

/** The options of an SDK's server that all instances may share. */
export interface ServerOptions {
  /** SDK v2's validator: JSON Schema 2020-12, unless a schema names another dialect. Each schema is compiled once. */
  readonly jsonSchemaValidator: {
    getValidator<T>(
      schema: object,
    ): (
      input: unknown,
    ) =>
      | { valid: true; data: T; errorMessage: undefined }
      | { valid: false; data: undefined; errorMessage: string };
  };
}

/** An SDK's validators, by their classes. */
const caches = new Map<new () => Validator, CachingValidator>();

function sharedOf(kind: new () => Validator): CachingValidator {
  let shared = caches.get(kind);
  if (shared === undefined) {
    const make = (): Validator => new kind();
    const isPlain = kind.name.startsWith('Cf');
    shared = new CachingValidator(isPlain ? () => new PlainValidator(make()) : compilingValidator(make));
    caches.set(kind, shared);
  }
  return shared;
}

/** An SDK server that is not given a validator makes one of its own, each time. */
export function serverOptions(): ServerOptions {
  const shared: Validator = sharedOf(AjvJsonSchemaValidator);
  return { jsonSchemaValidator: shared as ServerOptions['jsonSchemaValidator'] };
}

/** Lets servers that use their SDK's default validator share one of its kind. */
export function shareValidator(server: LowLevel): void {
  const holder = server as unknown as { _jsonSchemaValidator?: Validator };
  const own = holder._jsonSchemaValidator;
  if (own === undefined || own instanceof CachingValidator) return;
  const kind = own.constructor as new () => Validator;
  // A validator that its author passed in may be anything; the SDKs' own are these.
  if (!/^(Ajv|CfWorker|Default)JsonSchemaValidator$/.test(kind.name)) return;
  holder._jsonSchemaValidator = sharedOf(kind);
}
