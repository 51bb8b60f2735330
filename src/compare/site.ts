/** A site: one handler of one version of a server, for one revision, on a port of its own on loopback. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Revision, TABLE } from '../../compat/revisions.ts';
import { type JsonObject, sleep, systemClock } from '../base/values.ts';
import type { LimitOptions } from '../call/limits.ts';
import type { Relay } from '../call/ports.ts';
import { createAwaitHandler } from '../handler/handler.ts';
import type { HostFactory } from '../host/host.ts';
import { type NodeRequest, toNodeHandler } from '../node.ts';
import type { Logger } from '../observe/logger.ts';
import { keyvOver, type StoreAccess } from './shared-store.ts';

/** A site's settings: JSON, since it may be in another process. */
export interface SiteConfig {
  readonly revision: Revision;
  /** `dropped`: every call that waits is run again from its journal; `kept`: its frame stays. */
  readonly frames: 'kept' | 'dropped';
  readonly capabilities: JsonObject;
  readonly secret: string;
  readonly limits?: LimitOptions;
}

export interface LogLine {
  readonly level: 'warn' | 'error';
  readonly message: string;
  readonly detail: JsonObject;
}

export interface Site {
  readonly url: string;
  /** Resolves where its process still runs its timers; it is killed otherwise. */
  answers(): Promise<void>;
  /** Ends as at a shutdown: running calls are given up to other processes. */
  close(): Promise<void>;
  /** As by SIGKILL: connections break, and nothing is written any more. */
  crash(): Promise<void>;
}

/** `isDead`: nothing is written any more; `isGone`: nothing is read, either. */
interface Life {
  readonly isDead: boolean;
  readonly isGone: boolean;
}

export interface Surroundings {
  readonly store: StoreAccess;
  readonly relay: Relay;
  readonly log: (line: LogLine) => void;
}

/** How long turns may take to end when a site is closed, in milliseconds; asking ones continue elsewhere. */
const DRAIN = 100;

export async function openSite(
  factory: HostFactory,
  config: SiteConfig,
  { store, relay, log }: Surroundings,
): Promise<Site> {
  const { revision: name, capabilities } = config;
  const declares = TABLE.get(name)?.options?.includes('capabilities');
  const life = { isDead: false, isGone: false };
  const handler = createAwaitHandler(factory, {
    revisions: [declares ? { name, capabilities } : name],
    store: keyvOver(mortal(store, life)),
    relay: deafened(relay, life),
    secrets: [config.secret],
    rateLimit: false,
    limits: { drain: DRAIN, ...(config.frames === 'dropped' && { frames: 0 }), ...config.limits },
    logger: loggerTo((line) => {
      if (!life.isDead) log(line);
    }),
  });
  const listener = toNodeHandler(handler);
  const server = createServer((req: NodeRequest, res) => {
    const token = /^Bearer (\S+)$/.exec(req.headers.authorization ?? '')?.[1];
    if (token !== undefined) req.auth = { token, clientId: token, scopes: [] };
    void listener(req, res);
  });
  return {
    url: await listen(server),
    answers: async () => {},
    close: async () => {
      await handler.close();
      await shut(server);
    },
    crash: async () => {
      life.isDead = true;
      // What its tools do meanwhile is done; clients that were cut off now would stop them.
      await sleep(systemClock, 50);
      life.isGone = true;
      await shut(server);
    },
  };
}

/** @returns its URL on this machine */
export async function listen(server: Server, port = 0): Promise<string> {
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export function shut(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

function loggerTo(log: (line: LogLine) => void): Logger {
  const at =
    (level: LogLine['level']) =>
    (message: string, detail: JsonObject = {}): void =>
      log({ level, message, detail });
  return { debug: () => {}, info: () => {}, warn: at('warn'), error: at('error') };
}

/** After a simulated death nothing more is written; what its last write let go on reads for a moment. */
function mortal(store: StoreAccess, life: Life): StoreAccess {
  const alive = <T>(operation: () => Promise<T>, isOver = life.isDead): Promise<T> =>
    isOver ? Promise.reject(new Error('this process is dead')) : operation();
  return {
    get: (key) => alive(() => store.get(key), life.isGone),
    set: (key, value) => alive(() => store.set(key, value)),
    delete: (key) => alive(() => store.delete(key)),
    insertIfAbsent: (key, value) => alive(() => store.insertIfAbsent(key, value)),
  };
}

/** `close` is not passed on: the relay is the comparison's. */
function deafened(relay: Relay, life: Life): Relay {
  return {
    listen: (name, hear) =>
      relay.listen(name, (message) => {
        if (!life.isDead) hear(message);
      }),
    send: async (name, message) => !life.isDead && relay.send(name, message),
    close: async () => {},
  };
}
