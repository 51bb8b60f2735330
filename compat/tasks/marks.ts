/**
 * Facts from a server's list of tools: which tools mirror arguments in headers, and which may run as tasks:
 * `execution.taskSupport`, and `_meta['mcp-await/tasks']` where an SDK does not pass that field on.
 * 1. Each caller has its own list: a factory may give one more tools than another. It is read once for each caller, and
 *    again when the server reports that its tools changed.
 * 2. Only listed tools are cached. An unlisted name is looked up with each call, since no notification says when a
 *    caller gets the tool.
 * 3. No call waits for a list: facts that do not arrive within a turn of the event loop serve later calls only, and a
 *    server that asks its user inside of its list gets an error.
 * 4. Callers with the same tools share one entry, so that many callers cost little.
 */
import { digest } from '../../src/base/digest.ts';
import { isObject, type JsonObject, keepFitting, keepNewest, objectOf } from '../../src/base/values.ts';
import { mirrorsArguments } from '../../src/host/guards.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { toolPages } from '../../src/host/tool-pages.ts';

/** The `_meta` entry by which a tool of any language declares when it is a task: `{ support, when }`, each optional. */
export const TASKS_META = 'mcp-await/tasks';

type When = 'never' | 'now' | 'after-asks';

export interface TaskMark {
  readonly support?: 'required' | 'optional' | 'forbidden';
  readonly when?: When;
  /** Whether the server runs the tool as a task of its own. */
  readonly isOwn?: true;
  /** Its input schema, where that mirrors arguments in headers (SEP-2243). */
  readonly mirrors?: JsonObject;
}

type Marks = ReadonlyMap<string, TaskMark>;

const NONE: TaskMark = {};
const CALLERS = 20_000;
/** Lists that differ. */
const LISTS = 200;

export class ToolMarks {
  /** The digests of their lists; anonymous callers are one. */
  readonly #callers = new Map<string | undefined, string>();
  readonly #lists = new Map<string, Marks>();
  /** How often the tools changed. */
  #changes = 0;
  /** Lists that are being read. */
  readonly #reading = new Map<string | undefined, Promise<Marks>>();

  /** The facts of a tool, by this caller's last list. */
  known(principal: string | undefined, name: string): TaskMark | undefined {
    return this.#of(principal)?.get(name);
  }

  /** @param instance the caller's; it is asked where that is not known, and not waited for */
  of(principal: string | undefined, name: string, instance: ListedInstance): TaskMark | Promise<TaskMark> {
    const known = this.known(principal, name);
    if (known !== undefined) return known;
    const late = new Promise<undefined>((resolve) => setImmediate(resolve, undefined));
    return Promise.race([this.#list(principal, instance), late]).then((listed) => listed?.get(name) ?? NONE);
  }

  /** Reads the facts from a list that a client requested, which saves a request. */
  learn(principal: string | undefined, list: JsonObject, instance: Pick<HostInstance, 'forbids'>): void {
    this.#keep(principal, marksIn(list, instance));
  }

  /** One list of a caller's at a time: a slow one is not read by each of its calls. */
  #list(principal: string | undefined, instance: ListedInstance): Promise<Marks> {
    const reading = this.#reading.get(principal);
    if (reading !== undefined) return reading;
    const changes = this.#changes;
    const listed = list(instance).then((marks) => {
      if (this.#reading.get(principal) === listed) this.#reading.delete(principal);
      if (changes === this.#changes) this.#keep(principal, marks);
      return marks;
    });
    this.#reading.set(principal, listed);
    return listed;
  }

  /** The server's tools changed. */
  forget(): void {
    this.#changes += 1;
    this.#reading.clear();
    this.#callers.clear();
    this.#lists.clear();
  }

  #of(principal: string | undefined): Marks | undefined {
    return this.#lists.get(this.#callers.get(principal) ?? '');
  }

  /** Merges with the lists of the caller's other sessions. */
  #keep(principal: string | undefined, listed: Marks): void {
    const marks = new Map([...(this.#of(principal) ?? []), ...listed]);
    keepFitting(marks);
    const key = digest([...marks]);
    if (!this.#lists.has(key)) this.#lists.set(key, marks);
    keepNewest(this.#lists, LISTS);
    this.#callers.set(principal, key);
    keepNewest(this.#callers, CALLERS);
  }
}

/** The instance whose tools are listed. */
type ListedInstance = Pick<HostInstance, 'request' | 'forbids'>;

async function list(instance: ListedInstance): Promise<Marks> {
  const marks = new Map<string, TaskMark>();
  let page = 0;
  const pages = toolPages((params) =>
    instance.request({ id: `marks-${page++}`, method: 'tools/list', params }, {}),
  );
  for await (const result of pages)
    for (const [name, mark] of marksIn(result, instance)) marks.set(name, mark);
  return marks;
}

function marksIn({ tools }: JsonObject, instance: Pick<HostInstance, 'forbids'>): Marks {
  const named = (Array.isArray(tools) ? tools : []).filter(
    (tool): tool is JsonObject & { name: string } => isObject(tool) && typeof tool.name === 'string',
  );
  return new Map(named.map((tool) => [tool.name, markOf(tool, instance)]));
}

const SUPPORT: ReadonlySet<unknown> = new Set(['required', 'optional', 'forbidden']);
const WHEN: ReadonlySet<unknown> = new Set(['never', 'now', 'after-asks']);

/** The facts of one tool; `forbidden` only if its author chose that (see `HostInstance.forbids`). */
export function markOf(tool: JsonObject, { forbids }: Pick<HostInstance, 'forbids'>): TaskMark {
  const said = isObject(tool._meta) ? tool._meta[TASKS_META] : undefined;
  const own = objectOf(said);
  const { taskSupport } = objectOf(tool.execution);
  const listed = taskSupport === 'forbidden' && !forbids ? undefined : taskSupport;
  const support = own.support ?? listed;
  const isOwn = own.support === undefined && (listed === 'required' || listed === 'optional');
  return {
    ...(SUPPORT.has(support) && { support: support as TaskMark['support'] & string }),
    ...(WHEN.has(own.when) && { when: own.when as When }),
    ...(isOwn && { isOwn }),
    ...(mirrorsArguments(tool.inputSchema) && { mirrors: tool.inputSchema }),
  };
}
