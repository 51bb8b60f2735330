/**
 * The end of a `node:http` server that loses no request: what arrives on open connections is served, and the response
 * closes its connection.
 * 1. The listener alone is closed: `http.Server.close()` also closes idle connections, on which requests are under way.
 * 2. An idle connection stays for as long as its client was told (`Keep-Alive: timeout`), and a second more: clients let
 *    go a second before it.
 * 3. Nothing is written after the store is disconnected.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { constants } from 'node:os';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { Server as TlsServer } from 'node:tls';
import { checkAtLeast, systemClock, within } from '../../base/values.ts';

/** How much longer than announced an idle connection stays, in milliseconds. */
const MARGIN = 1_000;
/** How long responses may take once their connections are to close, in milliseconds, beyond the idle ones' time. */
const REST = 2_000;
/** How long it stays for a second signal, in milliseconds: at its very end Node listens for none. */
const PAIR = 500;
/**
 * How long the turn of the event loop may take after which the listener closes, by how long it was waited for, both in
 * milliseconds: connections of that time are lost.
 */
const QUIET_TURNS: readonly { readonly until: number; readonly longest: number }[] = [
  { until: 2_000, longest: 0.03 },
  { until: 4_000, longest: 0.1 },
  { until: 6_000, longest: 1 },
];
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/** The part of `createAwaitHandler`'s product that is used here. */
export interface Closes {
  readonly leave: (linger?: number) => Promise<void>;
  readonly close: () => Promise<void>;
  readonly release: () => Promise<void>;
}

/** The options of `closeOnSignals`. */
export interface CloseOptions {
  /**
   * How long the process goes on listening after the signal, in milliseconds, while `handler.health()` says no: longer
   * than the interval at which a balancer asks. Default 0, for balancers that try another process when a connection is
   * refused.
   */
  readonly linger?: number;
  /** What `mountWebSocket` returned: each socket is closed once its calls are replied to, or handed over. */
  readonly sockets?: { close(): Promise<void> };
}

/**
 * Ends the process on SIGTERM, SIGINT or SIGHUP so that no call is lost: the listener closes, open connections are
 * served, running calls get `limits.drain` and are handed over to other processes; then the relay and the store that
 * the handler was given are closed, and the process exits by itself. A second signal changes nothing, a third ends the
 * process at once.
 * @returns a function that does the same without a signal; each call of it returns the same promise
 * @throws AwaitError `bad-option`
 *
 * @example
 * import { createServer } from 'node:http';
 * import { createAwaitHandler } from 'mcp-await';
 * import { closeOnSignals, toNodeHandler } from 'mcp-await/node';
 * import buildServer from './server.js';
 *
 * const handler = createAwaitHandler(buildServer);
 * const server = createServer(toNodeHandler(handler)).listen(3000, '127.0.0.1');
 * closeOnSignals(server, handler);
 */
export function closeOnSignals(
  server: Server,
  handler: Closes,
  { linger = 0, sockets }: CloseOptions = {},
): () => Promise<void> {
  checkAtLeast(0, 'linger', linger);
  const connections = new ServerConnections(server);
  const end = async (): Promise<void> => {
    const left = handler.leave(linger);
    if (linger > 0) await sleep(linger);
    await connections.leave();
    const gone = connections.gone();
    await left;
    await sockets?.close();
    const idle = server.keepAliveTimeout + MARGIN;
    await within(systemClock, idle + REST, gone);
    // A reply that began meanwhile, or lasted, ends now: its connection may bring one more request.
    await handler.leave();
    await within(systemClock, idle + REST, gone);
    // From here on requests are refused.
    await handler.close();
    server.closeAllConnections();
    await handler.release();
  };
  let ending: Promise<void> | undefined;
  const close = (): Promise<void> => {
    ending ??= end();
    return ending;
  };
  onSignals(close);
  return close;
}

/** The first signal closes; a supervisor and npm together send two; the third is a person who does not wait. */
export function onSignals(close: () => Promise<void>): void {
  let count = 0;
  const onSignal = (name: (typeof SIGNALS)[number]): void => {
    count += 1;
    setTimeout(() => {}, PAIR);
    if (count > 2) process.exit(128 + constants.signals[name]);
    close().catch((error: unknown) => {
      // What could not be closed would keep the process for ever.
      process.stderr.write(`mcp-await: could not close: ${String(error)}\n`, () => process.exit(1));
    });
  };
  for (const name of SIGNALS) process.on(name, onSignal);
}

/** The connections of a server, each with the responses that are not complete. */
class ServerConnections {
  readonly #server: Server;
  readonly #open = new Map<Socket, Set<ServerResponse>>();
  #accepted = 0;
  #isLeaving = false;
  #gone = Promise.resolve();
  /** Responses that would have kept their connection. */
  readonly #closing = new WeakSet<ServerResponse>();

  constructor(server: Server) {
    this.#server = server;
    // A response of HTTPS names the connection inside of the encryption.
    server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
      this.#accepted += 1;
      this.#responsesOf(socket);
      if (this.#isLeaving) this.#keep(socket);
    });
    // Before the listener that may send the response.
    server.prependListener('request', ({ socket }: IncomingMessage, res: ServerResponse) => {
      const responses = this.#responsesOf(socket).add(res);
      if (this.#isLeaving) {
        this.#closeWith(responses);
        socket.setTimeout(server.timeout);
      }
      res.once('close', () => responses.delete(res));
      res.once('finish', () => {
        responses.delete(res);
        // Earlier releases of Node close an idle connection at the very moment that its client was told.
        if (responses.size === 0 && !('keepAliveTimeoutBuffer' in server)) this.#keep(socket);
      });
    });
  }

  /** Closes each connection with its last response, and the listener: resolves once that is closed. */
  async leave(): Promise<void> {
    this.#isLeaving = true;
    for (const [socket, responses] of this.#open) {
      this.#closeWith(responses);
      // One that has brought nothing yet stays as long as one whose client was told.
      if (socket.bytesRead === 0) this.#keep(socket);
    }
    // Compiled before it counts: the first call takes longer than the turn that is waited for.
    await closeListener(new NetServer());
    await this.#acceptAll();
    this.#gone = closeListener(this.#server);
  }

  /** After `leave`: resolves once there is no connection. */
  gone(): Promise<void> {
    return this.#gone;
  }

  /** Of requests that came one behind the other only the last one's response may close the connection. */
  #closeWith(responses: ReadonlySet<ServerResponse>): void {
    const last = [...responses].at(-1);
    for (const res of responses) {
      if (res !== last && this.#closing.delete(res) && !res.headersSent) res.shouldKeepAlive = true;
    }
    if (last === undefined || !last.shouldKeepAlive) return;
    last.shouldKeepAlive = false;
    this.#closing.add(last);
  }

  /** The kernel resets connections that it took and this process did not: the listener closes after a quiet turn. */
  async #acceptAll(): Promise<void> {
    const start = performance.now();
    for (const { until, longest } of QUIET_TURNS)
      for (let began = start; began - start < until; ) {
        const before = this.#accepted;
        began = performance.now();
        await nextTurn();
        if (this.#accepted === before && performance.now() - began < longest) return;
      }
  }

  #responsesOf(socket: Socket): Set<ServerResponse> {
    const known = this.#open.get(socket);
    if (known !== undefined) return known;
    const responses = new Set<ServerResponse>();
    this.#open.set(socket, responses);
    socket.once('close', () => this.#open.delete(socket));
    return responses;
  }

  #keep(socket: Socket): void {
    const { keepAliveTimeout } = this.#server;
    if (keepAliveTimeout > 0) socket.setTimeout(keepAliveTimeout + MARGIN);
  }
}

/** Resolves once the listener is closed and there is no connection. */
function closeListener(server: NetServer): Promise<void> {
  return new Promise((resolve) => {
    NetServer.prototype.close.call(server, () => resolve());
  });
}
