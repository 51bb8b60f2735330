/** The store of a comparison: a map that several handlers share, in this process or from others by messages. */
import Keyv from 'keyv';
import { isObject, nextTurn } from '../base/values.ts';
import type { Completion, Entry, OpenAsk } from '../call/journal/entries.ts';
import { plainRecords } from '../checkpoint/records.ts';

/** A process's access to its store: a Keyv adapter with the primitive that the journal needs. */
export interface StoreAccess {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown): Promise<unknown>;
  delete(key: string): Promise<boolean>;
  insertIfAbsent(key: string, value: unknown): Promise<boolean>;
}

export function keyvOver(access: StoreAccess): Keyv {
  // An object of its own: Keyv sets members on its adapter.
  return new Keyv({
    store: {
      opts: {},
      get: (key: string) => access.get(key),
      set: (key: string, value: unknown) => access.set(key, value),
      delete: (key: string) => access.delete(key),
      clear: async () => {},
      insertIfAbsent: (key: string, value: unknown) => access.insertIfAbsent(key, value),
    },
  });
}

export class SharedStore implements StoreAccess {
  readonly #map = new Map<string, unknown>();
  readonly #completed = new Map<string, string>();
  #reworded: string[] = [];
  /** Ids of calls, by the names of their journals. */
  readonly #calls = new Map<string, string>();
  /** Called with each journal entry as it is written. */
  onEntry: ((entry: Entry, process: string) => void) | undefined;
  /** Called with the id of a call that asks, as its ask is written. */
  onAsk: ((call: string) => void) | undefined;

  async get(key: string): Promise<unknown> {
    return this.#map.get(key);
  }

  async set(key: string, value: unknown): Promise<boolean> {
    this.#map.set(key, value);
    return true;
  }

  async delete(key: string): Promise<boolean> {
    return this.#map.delete(key);
  }

  /** @param process the name of the one that inserts */
  async insertIfAbsent(key: string, value: unknown, process = ''): Promise<boolean> {
    // As a store elsewhere: what the process wrote to its sockets before has left it by then.
    await nextTurn();
    if (this.#map.has(key)) return false;
    this.#map.set(key, value);
    const entry = await entryIn(key, value);
    if (entry === undefined) return true;
    const call = entry.type === 'called' ? entry.call : entry.type === 'suspended' && entry.checkpoint.call;
    const { id } = call || { id: this.#calls.get(callOf(key)) };
    if (id !== undefined) this.#calls.set(callOf(key), id);
    if (id !== undefined && asksIn(entry).length > 0) this.onAsk?.(id);
    for (const path of pathsIn(entry)) this.#completed.set(`${callOf(key)} ${path}`, path);
    for (const { params, drift } of asksIn(entry)) {
      if (drift !== undefined) this.#reworded.push(String(params.message ?? 'a question'));
    }
    this.onEntry?.(entry, process);
    return true;
  }

  /** Whether a call has a journal here. */
  knows(call: string): boolean {
    return [...this.#calls.values()].includes(call);
  }

  /** The steps that completed since this was last asked, in order, each once a call. */
  takeSteps(): string[] {
    const steps = [...this.#completed.values()];
    this.#completed.clear();
    return steps;
  }

  /** The questions that stood where a tool, run before, had asked another one; since this was last asked. */
  takeReworded(): string[] {
    const reworded = [...new Set(this.#reworded)];
    this.#reworded = [];
    return reworded;
  }
}

const ENTRIES: ReadonlySet<unknown> = new Set<Entry['type']>([
  'called',
  'asked',
  'completed',
  'suspended',
  'claimed',
  'ended',
]);

/** As sites write them: under the default audience, and not encrypted. */
const RECORDS = plainRecords('mcp-await');

async function entryIn(key: string, encoded: unknown): Promise<Entry | undefined> {
  if (typeof encoded !== 'string' || !encoded.includes('"type"')) return undefined;
  const outer: unknown = JSON.parse(encoded);
  const entry = isObject(outer) ? await RECORDS.decode(key, outer.value) : undefined;
  return isObject(entry) && ENTRIES.has(entry.type) ? (entry as unknown as Entry) : undefined;
}

function asksIn(entry: Entry): readonly OpenAsk[] {
  if (entry.type === 'asked') return [entry.ask];
  return entry.type === 'suspended' ? entry.checkpoint.open : [];
}

/** A step that ran in a turn without others has no entry of its own, and is only in the checkpoint. */
function pathsIn(entry: Entry): string[] {
  const completions: readonly Completion[] =
    entry.type === 'completed'
      ? [entry.completion]
      : entry.type === 'suspended'
        ? entry.checkpoint.completions
        : [];
  return completions.flatMap((completion) =>
    // A path that begins with a slash is this package's own: a recorded fetch, a shed.
    completion.kind === 'step' && !completion.path.startsWith('/') ? [completion.path] : [],
  );
}

/** `mcp-await:<call>:<position>`, behind the prefix of Keyv's. */
function callOf(key: string): string {
  return key.slice(0, key.lastIndexOf(':'));
}
