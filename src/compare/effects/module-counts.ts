/** What a server keeps in variables of its modules, without what its factory changes: a replay makes a new instance. */

import { type Runtime, Session } from 'node:inspector';
import { types } from 'node:util';
import { isForeign, pathIn } from '../../base/stack.ts';
import { isObject } from '../../base/values.ts';
import type { HostFactory } from '../../host/host.ts';

/** By variable: `/server.ts sent`. */
export type Counts = Readonly<Record<string, number>>;

export class ModuleCounts {
  /** The factory, whose own changes are not counted. */
  readonly factory: HostFactory;
  readonly #built = new Map<string, number>();
  readonly #root: HostFactory;
  #watch: ModuleWatch | undefined;

  constructor(root: HostFactory) {
    this.#root = root;
    this.factory = async (context) => {
      const before = this.#watch?.read();
      const host = await root(context);
      for (const [variable, count] of before === undefined ? [] : (this.#watch?.read() ?? [])) {
        const change = count - (before?.get(variable) ?? 0);
        if (change !== 0) this.#built.set(variable, (this.#built.get(variable) ?? 0) + change);
      }
      return host;
    };
  }

  /** Begins to count at the first call. */
  read(): Counts {
    this.#watch ??= new ModuleWatch(this.#root);
    const counts = [...this.#watch.read()].map(
      ([variable, count]) => [variable, count - (this.#built.get(variable) ?? 0)] as const,
    );
    return Object.fromEntries(counts);
  }

  close(): void {
    this.#watch?.close();
    this.#watch = undefined;
  }
}

// --- the state of modules ---

/**
 * Counts what a server keeps in variables of its modules, for comparisons: V8's inspector shows the scopes of a
 * function, and with them the variables that the functions of its module share. Nothing is paused.
 * It begins at the server's factory and follows the author's functions from module to module.
 */

/** Numbers, and lengths and sizes, by variable: `server.ts sent`, `server.ts orders.size`. */
type ModuleState = ReadonlyMap<string, number>;

/** Most functions that are followed, and most values of one variable. */
const MOST = 500;
/** The inspector is in the process that it inspects: values pass through this member of `globalThis`. */
const SLOT = Symbol.for('mcp-await.observed');
const slots = globalThis as { [SLOT]?: unknown };
const OF_SLOT = `globalThis[Symbol.for('mcp-await.observed')]`;

/** A function of the author's. */
interface AuthorFunction {
  readonly objectId: string;
  readonly path: string;
  readonly place: string;
}

interface Scope {
  readonly description: string;
  readonly object: Readonly<Record<string, unknown>>;
}

class ModuleWatch {
  readonly #session = new Session();
  readonly #scripts = new Map<string, string>();
  readonly #root: unknown;
  /** A read costs a tenth of a millisecond for each function that is looked up; foreign ones are `undefined`. */
  readonly #followed = new WeakMap<object, AuthorFunction | undefined>();

  /** @param root a function of the author's */
  constructor(root: unknown) {
    this.#root = root;
    this.#session.connect();
    this.#session.on('Debugger.scriptParsed', ({ params }) => this.#scripts.set(params.scriptId, params.url));
    // For the names of scripts: no breakpoint is set.
    this.#session.post('Debugger.enable');
  }

  close(): void {
    this.#session.disconnect();
  }

  read(): ModuleState {
    const state = new Map<string, number>();
    const seen = new Set<string>();
    const open = [this.#root];
    for (const one of open) {
      const followed = this.#followedOf(one);
      if (followed === undefined) {
        open.push(...membersOf(one));
        continue;
      }
      const { path, place, objectId } = followed;
      if (seen.has(place) || seen.size > MOST) continue;
      seen.add(place);
      for (const { description, object } of this.#scopesOf(objectId)) {
        const variables = Object.entries(object);
        const names = `${path} ${description} ${Object.keys(object).join()}`;
        if (seen.has(names) || /^(Global|Script)\b/.test(description)) continue;
        seen.add(names);
        for (const [name, value] of variables) {
          open.push(value);
          this.#count(value, `${path} ${name}`, state);
        }
      }
    }
    return state;
  }

  /** Getters are not called, and class instances are those of the author's classes. */
  #count(variable: unknown, name: string, state: Map<string, number>): void {
    let left = MOST;
    const walk = (value: unknown, path: string, depth: number): void => {
      left -= 1;
      if (left < 0) return;
      if (typeof value === 'number' && Number.isFinite(value)) state.set(path, value);
      else if (typeof value === 'string' || Array.isArray(value)) state.set(`${path}.length`, value.length);
      else if (value instanceof Map || value instanceof Set) state.set(`${path}.size`, value.size);
      else if (depth < 3) {
        // A class of the author's, or an instance of one, counts where it is a variable.
        const made = isObject(value) && !types.isProxy(value) ? value.constructor : value;
        if (!isPlain(value) && (depth > 0 || this.#followedOf(made) === undefined)) return;
        const members = dataOf(value as object);
        state.set(`${path}.size`, members.length);
        for (const [member, inner] of members) walk(inner, `${path}.${member}`, depth + 1);
      }
    };
    walk(variable, name, 0);
  }

  #followedOf(value: unknown): AuthorFunction | undefined {
    if (typeof value !== 'function') return undefined;
    if (!this.#followed.has(value)) this.#followed.set(value, this.#lookUp(value));
    return this.#followed.get(value);
  }

  #lookUp(value: unknown): AuthorFunction | undefined {
    slots[SLOT] = value;
    let objectId = '';
    this.#session.post('Runtime.evaluate', { expression: OF_SLOT }, (_error, found) => {
      objectId = found?.result.objectId ?? '';
    });
    delete slots[SLOT];
    const location = this.#internalOf(objectId, '[[FunctionLocation]]')?.value as Location | undefined;
    const url = this.#scripts.get(location?.scriptId ?? '') ?? '';
    if (location !== undefined && !isForeign(url)) {
      const place = `${location.scriptId}:${location.lineNumber}:${location.columnNumber}`;
      return { objectId, place, path: pathIn(url) };
    }
    this.#session.post('Runtime.releaseObject', { objectId });
    return undefined;
  }

  /** The scopes of a function as they are now. */
  #scopesOf(function_: string): readonly Scope[] {
    const { objectId } = this.#internalOf(function_, '[[Scopes]]') ?? {};
    if (objectId === undefined) return [];
    this.#session.post('Runtime.callFunctionOn', {
      objectId,
      functionDeclaration: `function () { ${OF_SLOT} = Array.from(this); }`,
    });
    const scopes = slots[SLOT] as readonly Scope[];
    delete slots[SLOT];
    this.#session.post('Runtime.releaseObject', { objectId });
    return scopes;
  }

  #internalOf(objectId: string, name: string): Runtime.RemoteObject | undefined {
    let found: Runtime.RemoteObject | undefined;
    this.#session.post('Runtime.getProperties', { objectId, ownProperties: true }, (_error, got) => {
      found = got?.internalProperties?.find((one) => one.name === name)?.value;
    });
    return found;
  }
}

interface Location {
  readonly scriptId: string;
  readonly lineNumber: number;
  readonly columnNumber: number;
}

/** The values that may lead to functions: of a module, whose exports bundlers make getters, and of a plain object. */
function membersOf(value: unknown): unknown[] {
  if (isModule(value)) return Object.values(value);
  return isPlain(value)
    ? dataOf(value).flatMap(([, inner]) => (typeof inner === 'function' ? [inner] : []))
    : [];
}

function isModule(value: unknown): value is object {
  return (
    isObject(value) && !types.isProxy(value) && Object.prototype.toString.call(value) === '[object Module]'
  );
}

function isPlain(value: unknown): value is object {
  if (!isObject(value) || types.isProxy(value) || isModule(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function dataOf(value: object): [string, unknown][] {
  return Object.entries(Object.getOwnPropertyDescriptors(value)).flatMap(
    ([name, { enumerable, value: inner }]) => (enumerable && inner !== undefined ? [[name, inner]] : []),
  );
}
