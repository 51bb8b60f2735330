/** The option `revisions`: which are served, and the options that some of them have. */
import { badOption, defined, isObject, type JsonObject } from '../base/values.ts';

/** Options of a revision; each is refused where the revision has no such option. */
export interface RevisionOptions {
  /**
   * SEP-1858: whether `buffer_input` and `input_required` go out without a `data` line, as the draft prints them.
   * Parsers that follow the standard drop such events. Default false: the line is there, and empty.
   */
  readonly literal?: boolean;
  /**
   * `workspace-sse`: the capabilities of a client that sent no `initialize`, in MCP's own shape:
   * `{ elicitation: {} }`. Default: none, so a tool that asks gets its SDK's error.
   */
  readonly capabilities?: JsonObject;
}

/** A revision by its name, with options of its own or without; `*`: every one. */
export type RevisionEntry<Name extends string = string> =
  | Name
  | '*'
  | ({ readonly name: Name } & RevisionOptions);

export interface KnownRevisions {
  readonly names: readonly string[];
  /** Those that need a store, if only one of this process. */
  readonly stored?: readonly string[];
  /** The options of those that have some. */
  readonly options?: ReadonlyMap<string, readonly (keyof RevisionOptions)[]>;
}

export interface ServedRevisions extends Required<RevisionOptions> {
  readonly names: ReadonlySet<string>;
}

const bad = (why: string): Error => badOption('revisions', why);

/** @throws AwaitError `bad-option` */
export function revisionsOf(
  entries: readonly RevisionEntry[] = ['*'],
  { names: known, stored = [], options = new Map() }: KnownRevisions,
  hasStore: boolean,
): ServedRevisions {
  const list: unknown = entries;
  if (!Array.isArray(list) || list.length === 0) {
    throw bad(`must be an array of ${known.join(', ')}, or '*' for all of them`);
  }
  const names = new Set<string>();
  let own: RevisionOptions = {};
  for (const entry of list) {
    if (entry === '*') {
      for (const name of known) if (hasStore || !stored.includes(name)) names.add(name);
      continue;
    }
    const { name, ...rest } = isObject(entry) ? entry : { name: entry };
    if (typeof name !== 'string' || !known.includes(name)) {
      throw bad(`must name some of ${known.join(', ')}, not ${JSON.stringify(name)}`);
    }
    if (!hasStore && stored.includes(name)) {
      throw bad(
        `names ${name}, which needs a store: its clients send no token. Add store: new Keyv(…), or leave ${name} out`,
      );
    }
    const unknown = Object.keys(rest).find((key) => !options.get(name)?.some((one) => one === key));
    if (unknown !== undefined) throw bad(`gives ${name} ${unknown}, which is no option of it`);
    names.add(name);
    own = { ...own, ...checked(rest) };
  }
  return { literal: false, capabilities: {}, ...own, names };
}

function checked({ literal, capabilities }: JsonObject): RevisionOptions {
  if (literal !== undefined && typeof literal !== 'boolean') {
    throw bad(`must have true or false as literal, not ${JSON.stringify(literal)}`);
  }
  const isGood =
    capabilities === undefined || (isObject(capabilities) && Object.values(capabilities).every(isObject));
  if (!isGood) throw bad('must have an object of objects as capabilities, such as { elicitation: {} }');
  return defined({ literal, capabilities });
}
