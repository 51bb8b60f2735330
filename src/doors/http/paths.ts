/** Which of the wires a path is: Streamable HTTP is wherever the handler is mounted, the others have paths of their own. */
import { badOption } from '../../base/values.ts';

export interface PathOptions {
  /** Where a client of HTTP+SSE (2024-11-05) opens its stream. Default `/sse`; `false`: nowhere. */
  readonly sse?: string | false;
  /** Where it posts to. Default `/messages`. */
  readonly messages?: string;
  /** Where a workspace is served, with `:workspace` as its last segment. Default `/mcp/:workspace`; `false`: nowhere. */
  readonly workspace?: string | false;
}

export type Place =
  | { readonly wire: 'mcp' | 'sse' | 'messages' }
  | { readonly wire: 'workspace'; readonly workspace: string };

const WORKSPACE = ':workspace';
/** Longest name of a workspace, in characters. */
const NAME_LENGTH = 256;
const MCP: Place = { wire: 'mcp' };
const SSE: Place = { wire: 'sse' };
const MESSAGES: Place = { wire: 'messages' };

export class Paths {
  readonly sse: string | undefined;
  readonly messages: string;
  /** The path before a workspace's name. */
  readonly #workspaces: string | undefined;

  /** @throws AwaitError `bad-option` */
  constructor({ sse = '/sse', messages = '/messages', workspace = `/mcp/${WORKSPACE}` }: PathOptions = {}) {
    for (const [name, path] of Object.entries({ sse, messages, workspace })) {
      if (path === false && name !== 'messages') continue;
      if (typeof path === 'string' && /^\/[^?#\s]*$/.test(path)) continue;
      throw badOption(`paths.${name}`, `must be a path that begins with /, not ${JSON.stringify(path)}`);
    }
    if (sse === messages) throw badOption('paths.messages', 'must be another path than paths.sse');
    if (workspace !== false && !workspace.endsWith(`/${WORKSPACE}`)) {
      throw badOption('paths.workspace', `must end with /${WORKSPACE}, as in /mcp/${WORKSPACE}`);
    }
    this.sse = sse === false ? undefined : sse;
    this.messages = messages;
    this.#workspaces = workspace === false ? undefined : workspace.slice(0, -WORKSPACE.length);
  }

  /**
   * @param path without mount prefix and query
   * @param base the mount prefix: a configured path matches with it and without it
   * @returns undefined if the path names no endpoint, or no valid workspace
   */
  find(path: string, base = ''): Place | undefined {
    const place = this.#find(path);
    return place === MCP && base !== '' ? this.#find(path === '/' ? base : base + path) : place;
  }

  /** Where a client posts to that opened its stream at `path`, as it sees it from outside. */
  messagesFor(path: string, base = ''): string {
    return path === this.sse ? base + this.messages : this.messages;
  }

  #find(path: string): Place | undefined {
    if (this.sse !== undefined && path === this.sse) return SSE;
    if (this.sse !== undefined && path === this.messages) return MESSAGES;
    const before = this.#workspaces;
    if (before === undefined || path.length <= before.length || !path.startsWith(before)) return MCP;
    const workspace = decoded(path.slice(before.length));
    return workspace === undefined ? undefined : { wire: 'workspace', workspace };
  }
}

function decoded(segment: string): string | undefined {
  if (segment.includes('/')) return undefined;
  try {
    const name = decodeURIComponent(segment);
    return name.length > NAME_LENGTH ? undefined : name;
  } catch {
    return undefined;
  }
}
