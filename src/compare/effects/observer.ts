/**
 * Observes effects of calls outside of steps, for comparisons: files, processes, requests, sockets, datagrams.
 * It owns the replaced functions of Node's modules, which are there while somebody observes; the async context names
 * the call. Servers do not use it: `src/observe/unjournaled.ts` costs them less, and sees less.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import childProcess, { ChildProcess } from 'node:child_process';
import dgram from 'node:dgram';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import fs from 'node:fs';
import { ClientRequest } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import { devNull } from 'node:os';
import { authorPlace } from '../../base/stack.ts';
import { isObject, objectOf } from '../../base/values.ts';
import { unjournaledCall } from '../../call/frame/context.ts';

/** One effect of a call, outside of its steps. */
export interface Effect {
  /** The id of its call. */
  readonly call: string;
  /** The tool's name, or what else was called. */
  readonly tool: string;
  /** One run of the tool; a replay is another. */
  readonly run: string;
  /** `wrote a file`, `started a process`. */
  readonly what: string;
  /** The author's line: `effect.ts:17`. */
  readonly at: string;
}

const observers = new Set<(effect: Effect) => void>();
let restore = (): void => {};
const runs = new WeakMap<object, string>();
let count = 0;

/** @returns what ends the observation */
export function observeEffects(observer: (effect: Effect) => void): () => void {
  if (observers.size === 0) restore = replaceEffects(sight);
  observers.add(observer);
  return () => {
    if (observers.delete(observer) && observers.size === 0) restore();
  };
}

/** @param below the function that has the effect: the place is that of its caller */
function sight(what: string, below: (...args: never[]) => unknown, place?: string): void {
  const frame = unjournaledCall();
  const record = isObject(frame) && isObject(frame.call) ? frame.call : undefined;
  if (frame === undefined || record === undefined) return;
  const at = place ?? authorPlace(below);
  if (!at) return;
  const run = runs.get(frame) ?? `${process.pid}-${++count}`;
  runs.set(frame, run);
  const { name, uri } = objectOf(record.params);
  const effect = { call: String(record.id), tool: String(name ?? uri ?? record.method), run, what, at };
  for (const observer of observers) observer(effect);
}

// --- what is replaced ---

/** The functions of Node whose calls are effects, replaced by ones that report them first. */

/** @param place where it was, if the stack no longer says so */
type Sight = (what: string, below: (...args: never[]) => unknown, place?: string) => void;

const WROTE = 'wrote a file';
/** Names in `node:fs`, `node:fs/promises` and of file handles; with `Sync` too. */
const FILES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    'appendFile chmod chown copyFile cp createWriteStream fchmod fchown ftruncate futimes lchown link lutimes symlink truncate utimes write writeFile writev'
      .split(' ')
      .map((name) => [name, WROTE]),
  ),
  mkdir: 'made a folder',
  mkdtemp: 'made a folder',
  open: 'emptied a file',
  rename: 'moved a file',
  rm: 'removed a file',
  rmdir: 'removed a folder',
  unlink: 'removed a file',
};
/** Requests of Node's `fetch` and of undici. */
const REQUESTS = 'undici:request:create';
const STARTED = 'started a process';
/** The standard streams: what is printed is no effect. */
const isStandard = (file: unknown): boolean => file === 0 || file === 1 || file === 2;

/** @returns what puts Node's own functions back */
function replaceEffects(sight: Sight): () => void {
  const undo: (() => void)[] = [];
  let isInside = false;
  const replace = (
    owner: object | undefined,
    name: string,
    what: (self: unknown, ...args: readonly unknown[]) => string | undefined,
  ): void => {
    const own = owner && Object.getOwnPropertyDescriptor(owner, name);
    const original: unknown = owner && Reflect.get(owner, name);
    if (owner === undefined || typeof original !== 'function') return;
    const replaced = function (this: unknown, ...args: unknown[]): unknown {
      const text = isInside ? undefined : what(this, ...args);
      if (text === undefined) return Reflect.apply(original, this, args);
      sight(text, replaced);
      // Node's functions use each other: one effect is reported once.
      isInside = true;
      try {
        return Reflect.apply(original, this, args);
      } finally {
        isInside = false;
      }
    };
    // Their name, and how they are made into promises.
    Object.defineProperties(replaced, Object.getOwnPropertyDescriptors(original));
    Object.defineProperty(owner, name, { value: replaced, configurable: true, writable: true });
    undo.push(() => {
      if (own === undefined) Reflect.deleteProperty(owner, name);
      else Object.defineProperty(owner, name, own);
    });
  };

  for (const [name, what] of Object.entries(FILES)) {
    const ofFile = (_self: unknown, file: unknown, flags: unknown) => {
      const empties = typeof flags === 'number' ? flags & fs.constants.O_TRUNC : /^w/.test(String(flags));
      return isStandard(file) || (name === 'open' && !empties) ? undefined : what;
    };
    replace(fs, name, ofFile);
    replace(fs, `${name}Sync`, ofFile);
    replace(fs.promises, name, ofFile);
  }
  // The class of file handles has no other name.
  void fs.promises.open(devNull).then(async (handle) => {
    if (undo.length > 0)
      for (const [name, what] of Object.entries(FILES))
        replace(Object.getPrototypeOf(handle) as object, name, () => what);
    await handle.close();
  });
  replace(ChildProcess.prototype, 'spawn', () => STARTED);
  for (const name of ['spawnSync', 'execSync', 'execFileSync']) replace(childProcess, name, () => STARTED);
  replace(dgram.Socket.prototype, 'send', () => 'sent a datagram');
  replace(net.Socket.prototype, 'write', (socket) => {
    const { server, _httpMessage, _isStdio, fd } = objectOf(socket);
    // Neither a reply to a client of this process, nor an HTTP request (seen as that), nor what is printed.
    const isOther = server || _httpMessage || _isStdio || isStandard(fd) || fetched.getStore();
    return isOther ? undefined : 'sent data over a socket';
  });
  replace(globalThis.WebSocket?.prototype, 'send', () => 'sent data over a WebSocket');

  replace(ClientRequest.prototype, 'end', (request) => {
    const { method, protocol, host } = objectOf(request);
    return sent(method, `${String(protocol)}//${String(host)}`);
  });
  const requested = (message: unknown): void => {
    const { method, origin } = objectOf(objectOf(message).request);
    sight(sent(method, origin), requested, fetched.getStore());
  };
  subscribe(REQUESTS, requested);
  const { fetch } = globalThis;
  // Its request is made later, below no frame of the author's.
  const fetching: typeof fetch = (...args) =>
    fetched.run(fetched.getStore() ?? authorPlace(fetching) ?? '', () => fetch(...args));
  globalThis.fetch = fetching;
  syncBuiltinESMExports();
  return () => {
    for (const one of undo.splice(0).reverse()) one();
    unsubscribe(REQUESTS, requested);
    if (globalThis.fetch === fetching) globalThis.fetch = fetch;
    syncBuiltinESMExports();
  };
}

/** Without the path, which may hold secrets. */
function sent(method: unknown, origin: unknown): string {
  return `sent a request (${String(method)} ${String(origin)})`;
}

/** Where the `fetch` that is running was called. */
const fetched = new AsyncLocalStorage<string>();
