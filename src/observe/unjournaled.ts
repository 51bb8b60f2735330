/**
 * Warns tool authors, in development, about code that a replay would run again: uses of the network, the file system
 * and child processes outside of `step` before an ask.
 * Node reports each such resource when it is made, or taken out of an agent's pool (`async_hooks`), and each request of
 * its `fetch` (`diagnostics_channel`); the async context names the call. Synchronous work is not seen, nor queries that
 * a database driver sends over a connection that was already open.
 */
import { createHook } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { authorPlace, fileOf, isBuiltIn, stackBelow } from '../base/stack.ts';
import { defined, isObject, type JsonObject } from '../base/values.ts';
import { unjournaledCall } from '../call/frame/context.ts';
import type { CallRecord } from '../call/journal/entries.ts';

type EffectKind = 'the network' | 'the file system' | 'a child process';

/** Types of async_hooks that are the beginning of something outside of this process. */
const KINDS: ReadonlyMap<string, EffectKind> = new Map([
  ...['FSREQCALLBACK', 'FSREQPROMISE', 'FSEVENTWRAP', 'STATWATCHER'].map(
    (type) => [type, 'the file system'] as const,
  ),
  ...['TCPWRAP', 'PIPECONNECTWRAP', 'UDPWRAP', 'UDPSENDWRAP', 'GETADDRINFOREQWRAP', 'QUERYWRAP'].map(
    (type) => [type, 'the network'] as const,
  ),
  ['PROCESSWRAP', 'a child process'],
]);

/** Requests of Node's `fetch` and of undici, also over connections that are kept alive. */
const REQUESTS = 'undici:request:create';

/** Most stack frames that are searched for the calling file. */
const DEPTH = 30;
/** Most tools that are warned about: resources may have any number of names. */
const MOST_TOOLS = 1_000;

interface Use {
  /** `fs.promises.readFile`, `GET http://127.0.0.1:80`; absent if it cannot be determined. */
  readonly what?: string;
  /** The author's line: `server.ts:41`. */
  readonly at?: string;
}

/** By the call it belongs to, the first of each kind. */
const uses = new WeakMap<object, Map<EffectKind, Use>>();

export interface Watch {
  /** The call asks: warns about its uses so far, once for each tool. */
  asked(frame: object, call: CallRecord): void;
  stop(): void;
}

/** Handlers that watch: the hooks are there while there are any. */
let watching = 0;

export function watchUnjournaled(warn: (message: string, detail: JsonObject) => void): Watch {
  const told = new Set<string>();
  if (watching === 0) {
    hook.enable();
    subscribe(REQUESTS, onRequest);
  }
  watching += 1;
  let stopped = false;
  return {
    asked(frame, call) {
      const used = uses.get(frame);
      const tool = nameOf(call);
      if (used === undefined || told.has(tool) || told.size >= MOST_TOOLS) return;
      told.add(tool);
      const texts = [...used].map(([kind, { what }]) => (what === undefined ? kind : `${kind} (${what})`));
      const places = [...used.values()].flatMap(({ at }) => at ?? []);
      warn(
        `${tool} used ${texts.join(' and ')} outside of a step before it asked. A call that goes on elsewhere does that again: wrap it in step('name', …), or set warnUnjournaled: false.`,
        { call: call.id, ...(places.length > 0 && { at: places }) },
      );
    },
    stop() {
      if (stopped) return;
      stopped = true;
      watching -= 1;
      if (watching > 0) return;
      hook.disable();
      unsubscribe(REQUESTS, onRequest);
    },
  };
}

// Promises are not needed; a Node version with this option then skips them.
const options = { init: onResource, trackPromises: false };
const hook = createHook(options);

/** Never throws: Node ends a process whose hook throws. */
function onResource(_id: number, type: string): void {
  const kind = KINDS.get(type);
  if (kind === undefined) return;
  const call = unjournaledCall();
  if (call === undefined || uses.get(call)?.get(kind)?.what !== undefined) return;
  const frames = stackBelow(onResource, DEPTH);
  // A module that is loaded once and for all, or the standard streams as they are first used.
  if (frames.some((frame) => /^node:internal\/(modules|bootstrap)\//.test(fileOf(frame)))) return;
  const user = frames.findIndex((frame) => !isBuiltIn(frame));
  const called = user > 0 ? nameOfApi(frames[user - 1]) : undefined;
  const at = authorPlace(onResource);
  note(call, kind, { ...defined({ what: called, at }) });
}

function onRequest(message: unknown): void {
  const call = unjournaledCall();
  if (call === undefined || !isObject(message) || !isObject(message.request)) return;
  const { origin, method } = message.request;
  // Without the path, which may hold secrets.
  note(call, 'the network', { what: `${String(method)} ${String(origin)}` });
}

/** Keeps the most specific use of each kind. */
function note(call: object, kind: EffectKind, use: Use): void {
  const known = uses.get(call) ?? new Map<EffectKind, Use>();
  uses.set(call, known);
  if (known.get(kind)?.what === undefined) known.set(kind, use);
}

/** `node:internal/fs/promises` and `readFile` become `fs.promises.readFile`. */
function nameOfApi(frame: NodeJS.CallSite | undefined): string | undefined {
  const module = /^node:(?:internal\/)?(.+)$/.exec(frame === undefined ? '' : fileOf(frame))?.[1];
  const name = frame?.getFunctionName()?.split('.').at(-1);
  if (module === undefined || name === undefined) return undefined;
  return `${module.replaceAll('/', '.')}.${name}`;
}

function nameOf({ method, params }: CallRecord): string {
  const name = String(params.name ?? params.uri ?? '');
  switch (method) {
    case 'tools/call':
      return `tool '${name}'`;
    case 'prompts/get':
      return `prompt '${name}'`;
    case 'resources/read':
      return `resource '${name}'`;
    default:
      return method;
  }
}
