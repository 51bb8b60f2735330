/**
 * What a server's tools say about tasks: `execution.taskSupport`, and `_meta['mcp-await/tasks']` where an SDK
 * keeps that field to itself.
 *
 * 1. Each caller's tools are their own: a factory may give one more than another. They are asked for once for each
 *    caller, and again when the server says that its tools changed.
 * 2. Only what was listed is known. A name that was not is asked for with each call, since nobody says when a caller
 *    is given the tool.
 * 3. Callers with the same tools share what is known of them, so that many callers cost little.
 */
import { keepNewest } from '../../src/call/bounded.ts';
import { digest, isObject, type JsonObject } from '../../src/call/json.ts';
import type { HostInstance } from '../../src/host/instance.ts';

/** The `_meta` entry by which a tool of any language says when it is a task: `{ support, when }`, each optional. */
export const TASKS_META = 'mcp-await/tasks';

type When = 'never' | 'now' | 'after-asks';

export interface Mark {
  readonly support?: 'required' | 'optional' | 'forbidden';
  readonly when?: When;
  /** Whether the server itself says that it runs the tool as a task. */
  readonly isOwn?: true;
}

type Marks = ReadonlyMap<string, Mark>;

const NONE: Mark = {};
/** Names of tools that are remembered for a caller, whose sessions may each have others. */
const NAMES = 5_000;
const CALLERS = 20_000;
/** Lists that differ. */
const LISTS = 200;
/** Pages of a list that are read. */
const PAGES = 50;

export class ToolMarks {
  /** The digests of their lists; anonymous callers are one. */
  readonly #callers = new Map<string | undefined, string>();
  readonly #lists = new Map<string, Marks>();
  /** How often the tools changed. */
  #changes = 0;

  /** What a tool said of itself when this caller's were asked for last. */
  known(principal: string | undefined, name: string): Mark | undefined {
    return this.#of(principal)?.get(name);
  }

  /** @param instance the caller's; it is asked where that is not known */
  async of(
    principal: string | undefined,
    name: string,
    instance: Pick<HostInstance, 'request'>,
  ): Promise<Mark> {
    const known = this.known(principal, name);
    if (known !== undefined) return known;
    const changes = this.#changes;
    const listed = await list(instance);
    if (changes === this.#changes) this.#keep(principal, listed);
    return listed.get(name) ?? NONE;
  }

  /** The server's tools changed. */
  forget(): void {
    this.#changes += 1;
    this.#callers.clear();
    this.#lists.clear();
  }

  #of(principal: string | undefined): Marks | undefined {
    const list = this.#callers.get(principal);
    return list === undefined ? undefined : this.#lists.get(list);
  }

  /** Beside what another session of the same caller listed. */
  #keep(principal: string | undefined, listed: Marks): void {
    const marks = new Map([...(this.#of(principal) ?? []), ...listed]);
    keepNewest(marks, NAMES);
    const key = digest([...marks]);
    if (!this.#lists.has(key)) this.#lists.set(key, marks);
    keepNewest(this.#lists, LISTS);
    this.#callers.set(principal, key);
    keepNewest(this.#callers, CALLERS);
  }
}

async function list(instance: Pick<HostInstance, 'request'>): Promise<Marks> {
  const marks = new Map<string, Mark>();
  let cursor: unknown;
  for (let page = 0; page < PAGES; page += 1) {
    const params = cursor === undefined ? {} : { cursor };
    const response = await instance.request({ id: `marks-${page}`, method: 'tools/list', params }, {});
    if (!('result' in response)) break;
    const { tools, nextCursor } = response.result;
    for (const tool of Array.isArray(tools) ? tools : []) {
      if (isObject(tool) && typeof tool.name === 'string') marks.set(tool.name, markOf(tool));
    }
    if (typeof nextCursor !== 'string') break;
    cursor = nextCursor;
  }
  return marks;
}

/** SDK v1 writes `forbidden` on every tool that it does not run as a task itself, so that says nothing. */
export function markOf(tool: JsonObject): Mark {
  const said = isObject(tool._meta) ? tool._meta[TASKS_META] : undefined;
  const own = isObject(said) ? said : {};
  const { taskSupport } = isObject(tool.execution) ? tool.execution : {};
  const support = own.support ?? (taskSupport === 'forbidden' ? undefined : taskSupport);
  return {
    ...(isSupport(support) && { support }),
    ...(isWhen(own.when) && { when: own.when }),
    ...(own.support === undefined && isSupport(support) && { isOwn: true }),
  };
}

function isSupport(value: unknown): value is NonNullable<Mark['support']> {
  return value === 'required' || value === 'optional' || value === 'forbidden';
}

function isWhen(value: unknown): value is When {
  return value === 'never' || value === 'now' || value === 'after-asks';
}
