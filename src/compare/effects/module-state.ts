/**
 * Counts what a server keeps in variables of its modules, for comparisons: V8's inspector shows the scopes of a
 * function, and with them the variables that the functions of its module share. Nothing is paused.
 * It begins at the server's factory and follows the author's functions from module to module.
 */
import { type Runtime, Session } from 'node:inspector';
import { isForeign, pathIn } from '../../base/stack.ts';

/** Numbers, and lengths and sizes, by variable: `server.ts sent`, `server.ts orders.size`. */
export type ModuleState = ReadonlyMap<string, number>;

/** Most functions that are followed. */
const MOST = 500;
const SLOT = Symbol.for('mcp-await.observed');

/** In the inspected process; its text is all that is passed. Getters are not called. */
function counted(this: unknown): Record<string, number> {
  const counts: Record<string, number> = {};
  let left = 500;
  const walk = (value: unknown, path: string, depth: number): void => {
    left -= 1;
    if (left < 0) return;
    if (typeof value === 'number' && Number.isFinite(value)) counts[path] = value;
    else if (typeof value === 'string' || Array.isArray(value)) counts[`${path}.length`] = value.length;
    else if (value instanceof Map || value instanceof Set) counts[`${path}.size`] = value.size;
    else if (typeof value === 'object' && value !== null && depth < 3) {
      const prototype: unknown = Object.getPrototypeOf(value);
      if (depth > 0 && prototype !== Object.prototype && prototype !== null) return;
      for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(value)))
        if (property.enumerable && 'value' in property) walk(property.value, `${path}.${name}`, depth + 1);
    }
  };
  walk(this, '', 0);
  return counts;
}

export class ModuleWatch {
  readonly #session = new Session();
  readonly #scripts = new Map<string, string>();
  readonly #root: unknown;

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
    const slots = globalThis as { [SLOT]?: unknown };
    slots[SLOT] = this.#root;
    const open: (Runtime.RemoteObject | undefined)[] = [];
    this.#session.post(
      'Runtime.evaluate',
      { expression: `globalThis[Symbol.for('mcp-await.observed')]`, objectGroup: 'mcp-await' },
      (_error, found) => open.push(found?.result),
    );
    delete slots[SLOT];
    for (let one = open.pop(); one !== undefined; one = open.pop()) {
      if (one.type === 'function' && seen.size < MOST) open.push(...this.#function(one, state, seen));
      else if (one.className === 'Module' || one.description === 'Module') open.push(...this.#exports(one));
      else if (one.className === 'Object')
        open.push(...this.#properties(one).flatMap(({ value }) => functions(value)));
    }
    this.#session.post('Runtime.releaseObjectGroup', { objectGroup: 'mcp-await' });
    return state;
  }

  /** Counts the variables that a function sees. @returns their values */
  #function(
    one: Runtime.RemoteObject,
    state: Map<string, number>,
    seen: Set<string>,
  ): Runtime.RemoteObject[] {
    const [place, scopes] = this.#internals(one, '[[FunctionLocation]]', '[[Scopes]]');
    const {
      scriptId = '',
      lineNumber = 0,
      columnNumber = 0,
    } = (place?.value ?? {}) as Partial<FunctionLocation>;
    const url = this.#scripts.get(scriptId) ?? '';
    const key = `${scriptId}:${lineNumber}:${columnNumber}`;
    if (seen.has(key) || isForeign(url)) return [];
    seen.add(key);
    const found: Runtime.RemoteObject[] = [];
    for (const { value: scope } of this.#properties(scopes)) {
      if (scope === undefined || /^(Global|Script)\b/.test(scope.description ?? '')) continue;
      const variables = this.#properties(scope);
      const names = `${scriptId} ${scope.description} ${variables.map(({ name }) => name).join()}`;
      if (seen.has(names)) continue;
      seen.add(names);
      for (const { name, value } of variables) {
        if (value === undefined) continue;
        found.push(value);
        for (const [path, count] of this.#counts(value)) state.set(`${pathIn(url)} ${name}${path}`, count);
      }
    }
    return found;
  }

  #counts(value: Runtime.RemoteObject): [string, number][] {
    if (value.type === 'number') return Number.isFinite(value.value) ? [['', Number(value.value)]] : [];
    if (value.type === 'string') return [['.length', String(value.value).length]];
    const { objectId } = value;
    if (value.type !== 'object' || objectId === undefined) return [];
    if (!/^(Object|Array|Map|Set)$/.test(value.className ?? '') && !this.#isOfAuthor(objectId)) return [];
    const counts = this.#call(objectId, counted.toString(), true)?.value as
      | Record<string, number>
      | undefined;
    return Object.entries(counts ?? {});
  }

  /** Whether it is an instance of a class of the author's. */
  #isOfAuthor(objectId: string): boolean {
    const made = this.#call(objectId, 'function () { return Object.getPrototypeOf(this)?.constructor; }');
    const [place] = this.#internals(made, '[[FunctionLocation]]');
    const { scriptId = '' } = (place?.value ?? {}) as Partial<FunctionLocation>;
    return !isForeign(this.#scripts.get(scriptId) ?? '');
  }

  /** Bundlers make the exports of a module getters. */
  #exports({ objectId = '' }: Runtime.RemoteObject): Runtime.RemoteObject[] {
    const values = this.#call(objectId, 'function () { return Object.values(this); }');
    return this.#properties(values).flatMap(({ value }) => (value === undefined ? [] : [value]));
  }

  #call(
    objectId: string,
    functionDeclaration: string,
    returnByValue = false,
  ): Runtime.RemoteObject | undefined {
    let found: Runtime.RemoteObject | undefined;
    const of = { objectId, functionDeclaration, returnByValue, objectGroup: 'mcp-await' };
    this.#session.post('Runtime.callFunctionOn', of, (_error, called?: Runtime.CallFunctionOnReturnType) => {
      found = called?.result;
    });
    return found;
  }

  #properties(of: Runtime.RemoteObject | undefined): Runtime.PropertyDescriptor[] {
    let result: Runtime.PropertyDescriptor[] = [];
    if (of?.objectId === undefined) return result;
    this.#session.post(
      'Runtime.getProperties',
      { objectId: of.objectId, ownProperties: true },
      (_error, got) => {
        result = got?.result ?? [];
      },
    );
    return result;
  }

  #internals(of: Runtime.RemoteObject | undefined, ...names: string[]): (Runtime.RemoteObject | undefined)[] {
    let result: Runtime.InternalPropertyDescriptor[] = [];
    if (of?.objectId !== undefined)
      this.#session.post(
        'Runtime.getProperties',
        { objectId: of.objectId, ownProperties: true },
        (_error, got) => {
          result = got?.internalProperties ?? [];
        },
      );
    return names.map((name) => result.find((one) => one.name === name)?.value);
  }
}

interface FunctionLocation {
  readonly scriptId: string;
  readonly lineNumber: number;
  readonly columnNumber: number;
}

function functions(value: Runtime.RemoteObject | undefined): Runtime.RemoteObject[] {
  return value?.type === 'function' ? [value] : [];
}
