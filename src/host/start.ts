/**
 * How an instance begins. On a revision with sessions the server is sent its client's `initialize` and `initialized`,
 * while its `connect` may still be pending. On a revision without sessions an SDK v2 server is put into its era
 * instead; a server of SDK v1 has no such era, and gets the `initialize` of the last one it knows.
 */
import process from 'node:process';
import { AwaitError, deferred, type JsonObject, reasonOf } from '../base/values.ts';
import type { Client, Response } from '../call/journal/entries.ts';
import { type Declared, enterEra, hasEras } from './era.ts';
import type { FactoryContext, HostServer } from './host.ts';
import { intercept } from './intercept.ts';
import { type LowLevel, lowLevelOf } from './protocol.ts';
import type { Router } from './router.ts';
import type { HostTransport, Message } from './transport.ts';
import { shareValidator } from './validator.ts';

const INITIALIZE = 'mcp-await-initialize';
/** How long `connect` and `oninitialized` may take to register tools, in milliseconds. */
const START_WAIT = 5_000;

export interface StartingHost {
  readonly server: HostServer;
  readonly transport: HostTransport;
  readonly router: Router;
  readonly context: FactoryContext;
  readonly client: Client;
  /** Whether the instance serves one call alone. */
  readonly single: boolean;
}

export interface BegunHost {
  /** The result of `initialize`, or the server's declaration in its place. */
  readonly declared: JsonObject;
  readonly lowLevel: LowLevel | undefined;
  /** Whether its server is in the era of a revision without sessions. */
  readonly isModern: boolean;
  /** Whether it may return its asks, and is called again with the answers. */
  readonly takesRounds: boolean;
}

/** Connects a server; resolves once the tools that it registers on `initialized` are there. */
export async function start(starting: StartingHost): Promise<BegunHost> {
  const { server, transport, router } = starting;
  const found = lowLevelOf(server);
  const early = found && take(found, starting);
  const connecting = connect(server, transport);
  await connecting.ready;
  const lowLevel = found ?? lowLevelOf(server, transport);
  const era = found === undefined ? lowLevel && take(lowLevel, starting) : early;
  const declared = era ?? (await initialize(starting));
  if (era === undefined) await announceInitialized(transport, lowLevel, router.asked);
  if (!connecting.isOver) await Promise.race([connecting.connected, startWait()]);
  const isModern = era !== undefined;
  return {
    declared: { ...declared },
    lowLevel,
    isModern,
    takesRounds: isModern || server.takesRounds === true,
  };
}

/** @returns its declaration, if its revision has no `initialize` to carry it */
function take(lowLevel: LowLevel, starting: StartingHost): Declared | undefined {
  const { transport, router, single, context, client } = starting;
  shareValidator(lowLevel);
  const isModern = context.era === 'modern' && hasEras(lowLevel);
  const declared = isModern ? enterEra(lowLevel, context.revision, client) : undefined;
  intercept(lowLevel, transport, (request) => router.ask(request), single);
  return declared;
}

interface Connecting {
  /** Resolves once the server hears, although it may still wait in its `connect`. */
  readonly ready: Promise<void>;
  readonly connected: Promise<void>;
  readonly isOver: boolean;
}

function connect(server: HostServer, transport: HostTransport): Connecting {
  let isOver = false;
  const { promise: ready, resolve: hears, reject: fails } = deferred();
  // Most servers are connected by then.
  transport.onListening = () => process.nextTick(() => isOver || setImmediate(hears));
  const connected = server.connect(transport).then(
    () => {
      isOver = true;
    },
    (error: unknown) => {
      throw new AwaitError('internal', `the server could not be connected: ${reasonOf(error)}`, error);
    },
  );
  connected.then(hears, fails);
  return {
    ready,
    connected,
    get isOver() {
      return isOver;
    },
  };
}

/** A server may wait in its `connect` for a message of its client, so that wait is limited. */
function startWait(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, START_WAIT).unref());
}

async function initialize({ client, router, transport }: StartingHost): Promise<JsonObject> {
  const params = {
    protocolVersion: client.protocolVersion,
    capabilities: client.capabilities,
    clientInfo: { name: 'unknown', version: '0', ...client.info },
  };
  const response = await new Promise<Response>((settle) => {
    router.inFlight.set(INITIALIZE, {
      id: INITIALIZE,
      method: 'initialize',
      params,
      settle,
      progress: { known: undefined, wanted: undefined },
      auth: {},
    });
    transport.deliver({ jsonrpc: '2.0', id: INITIALIZE, method: 'initialize', params });
  });
  if ('error' in response)
    throw new AwaitError('bad-answer', `the server refused to initialize: ${response.error.message}`);
  return response.result;
}

/**
 * Sends `initialized` and waits for the server's own handler, which may register tools; does not wait for its asks,
 * which may be answered late or never.
 */
async function announceInitialized(
  transport: HostTransport,
  server: LowLevel | undefined,
  asked: Promise<void>,
): Promise<void> {
  const message: Message = { jsonrpc: '2.0', method: 'notifications/initialized' };
  const handler = server?.oninitialized;
  if (server === undefined || handler === undefined) {
    transport.deliver(message);
    return;
  }
  const started = new Promise<void>((resolve) => {
    server.oninitialized = async () => {
      try {
        await handler.call(server);
      } finally {
        server.oninitialized = handler;
        resolve();
      }
    };
  });
  transport.deliver(message);
  await Promise.race([started, asked, startWait()]);
}
