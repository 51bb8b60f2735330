/**
 * What a server's tools say about tasks: `execution.taskSupport`, and `_meta['mcp-await/tasks']` where an SDK
 * keeps that field to itself. They are asked for once, and again when the server says that its tools changed.
 */
import { keepNewest } from '../../src/call/bounded.ts';
import { isObject, type JsonObject } from '../../src/call/json.ts';
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

const NONE: Mark = {};
/** Names that are remembered, of tools that are there and that are not. */
const KEPT = 2_000;
/** Pages of a list that are read. */
const PAGES = 50;

export class ToolMarks {
  readonly #known = new Map<string, Mark>();

  /** What a tool said of itself when it was asked last. */
  known(name: string): Mark | undefined {
    return this.#known.get(name);
  }

  /** @param instance is asked where that is not known */
  async of(name: string, instance: Pick<HostInstance, 'request'>): Promise<Mark> {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    await this.#list(instance);
    const mark = this.#known.get(name) ?? NONE;
    this.#known.set(name, mark);
    keepNewest(this.#known, KEPT);
    return mark;
  }

  /** The server's tools changed. */
  forget(): void {
    this.#known.clear();
  }

  async #list(instance: Pick<HostInstance, 'request'>): Promise<void> {
    let cursor: unknown;
    for (let page = 0; page < PAGES; page += 1) {
      const params = cursor === undefined ? {} : { cursor };
      const response = await instance.request({ id: `marks-${page}`, method: 'tools/list', params }, {});
      if (!('result' in response)) return;
      const { tools, nextCursor } = response.result;
      for (const tool of Array.isArray(tools) ? tools : []) {
        if (isObject(tool) && typeof tool.name === 'string') this.#known.set(tool.name, markOf(tool));
      }
      if (typeof nextCursor !== 'string') return;
      cursor = nextCursor;
    }
  }
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
