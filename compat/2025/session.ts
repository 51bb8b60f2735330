/**
 * One session of a 2025 client in this process: its server instance, its streams, the calls it has in work
 * and the asks it has not answered. The session itself is in its id, sealed, so that any process can make
 * this anew; what is in work is only here.
 */
import { randomUUID } from 'node:crypto';
import type { Started } from '../../src/call/engine.ts';
import type { Client, OpenAsk, Response } from '../../src/call/journal.ts';
import { digest, isObject, type JsonObject } from '../../src/call/json.ts';
import type { Leg, Outcome } from '../../src/call/ports.ts';
import type { HostInstance, Outside } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Services } from '../services.ts';
import { SessionStream } from './stream.ts';

const STREAMS_KEPT = 100;
/** Asks and notifications that wait for a session's standing stream. */
const STANDING = 'standing';

export interface RpcRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params: JsonObject;
}

interface AskedOfClient {
  settle(response: Response): Promise<boolean> | boolean;
}

export class Session {
  readonly id: string;
  readonly client: Client;
  readonly principal: string | undefined;
  used: number;
  /** When the store was last asked whether it was ended, in milliseconds since the epoch. */
  checked: number;
  readonly #services: Services;
  readonly #reserved = new Set<string | number>();
  readonly #calls = new Map<string | number, Started>();
  readonly #asked = new Map<string, AskedOfClient>();
  readonly #streams = new Map<string, SessionStream>();
  #instance: Promise<HostInstance> | undefined;
  #opened: HostInstance | undefined;

  constructor(id: string, client: Client, principal: string | undefined, services: Services) {
    this.id = id;
    this.client = client;
    this.principal = principal;
    this.#services = services;
    this.used = services.now();
    this.checked = this.used;
    this.#streams.set(STANDING, new SessionStream(STANDING, true));
  }

  /** Whether somebody listens; a session that nobody listens to for long is let go, with what it has in work. */
  get connected(): boolean {
    const connected = [...this.#streams.values()].some((stream) => stream.connected);
    if (connected) this.used = this.#services.now();
    return connected;
  }

  /** The session's server instance, made when it is first needed. */
  instance(open: (outside: Outside) => Promise<HostInstance>): Promise<HostInstance> {
    this.#instance ??= open(this.#outside()).then(
      (instance) => {
        this.#opened = instance;
        return instance;
      },
      (error: unknown) => {
        this.#instance = undefined;
        throw error;
      },
    );
    return this.#instance;
  }

  newStream(): SessionStream {
    const stream = new SessionStream(randomUUID());
    this.#streams.set(stream.id, stream);
    for (const [id, old] of this.#streams) {
      if (this.#streams.size <= STREAMS_KEPT) break;
      if (!old.standing && !old.connected && old.complete) this.#streams.delete(id);
    }
    return stream;
  }

  get standing(): SessionStream | undefined {
    return this.#streams.get(STANDING);
  }

  stream(id: string): SessionStream | undefined {
    return this.#streams.get(id);
  }

  /** Takes a request's id; false when a request of this id is in work. */
  reserve(id: string | number): boolean {
    if (this.#reserved.has(id)) return false;
    this.#reserved.add(id);
    return true;
  }

  release(id: string | number): void {
    this.#reserved.delete(id);
  }

  /** Starts a request; what it says on the way, and its response, go where `send` puts them. */
  async start(
    request: RpcRequest,
    instance: HostInstance | undefined,
    source: Pick<Leg, 'authInfo' | 'request' | 'closeStream'>,
    send: (message: JsonObject) => void,
  ): Promise<Outcome> {
    const meta = isObject(request.params._meta) ? request.params._meta : {};
    const token = meta.progressToken;
    const keys = new Map<string, string>();
    const leg: Leg = {
      ...source,
      live: true,
      capabilities: this.client.capabilities,
      ...((typeof token === 'string' || typeof token === 'number') && { progressToken: token }),
      notify: (notification) => send({ jsonrpc: '2.0', ...notification }),
      ask: (ask) => {
        const id = randomUUID();
        keys.set(ask.key, id);
        this.#asked.set(id, { settle: (response) => started.answer(ask.key, response) });
        send({ jsonrpc: '2.0', id, method: ask.method, ...paramsOf(ask) });
      },
      withdraw: (ask) => {
        const id = keys.get(ask.key);
        if (id === undefined || !this.#asked.delete(id)) return;
        send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } });
      },
    };
    const { method, params, id: requestId } = request;
    const binding = {
      revision: this.client.protocolVersion,
      method,
      target: String(params.name ?? params.uri ?? ''),
      args: digest(params),
      ...(this.principal !== undefined && { principal: this.principal }),
    };
    const started: Started = this.#services.engine.start(
      { method, params, requestId, client: this.client, binding },
      leg,
      instance,
    );
    this.#calls.set(request.id, started);
    try {
      return await started.outcome;
    } finally {
      this.#calls.delete(request.id);
      for (const id of keys.values()) this.#asked.delete(id);
    }
  }

  /** The client's response to an ask; false when nothing here asked it. */
  async answer(message: JsonObject): Promise<boolean> {
    const id = String(message.id);
    const asked = this.#asked.get(id);
    if (asked === undefined) return false;
    const done = await asked.settle(responseOf(message));
    this.#asked.delete(id);
    return done;
  }

  /** A notification of the client's. */
  async notified(message: JsonObject): Promise<void> {
    const { method, params } = message;
    if (method === 'notifications/initialized') return;
    if (method === 'notifications/cancelled') {
      const { requestId, reason } = isObject(params) ? params : {};
      const call = this.#calls.get(requestId as string | number);
      call?.cancel(typeof reason === 'string' ? reason : undefined);
      return;
    }
    const instance = await this.#instance;
    instance?.notify({ jsonrpc: '2.0', method: String(method), ...(isObject(params) && { params }) });
  }

  /** Ends it: its tools are told, by their signals. */
  close(): void {
    for (const call of this.#calls.values()) call.cancel('the session was closed');
    this.leave('the session was closed');
  }

  /** The process goes away: streams end, and tools hear nothing of it (invariant 1). */
  leave(reason = 'the server is shutting down'): void {
    for (const stream of this.#streams.values()) stream.finish(reason);
    this.#opened?.close();
  }

  /** What a server does on its own account goes over the session's standing stream. */
  #outside(): Outside {
    const { logger, limits } = this.#services.settings;
    return {
      notification: ({ method, params }) => {
        this.standing?.send({ jsonrpc: '2.0', method, ...(params !== undefined && { params }) });
      },
      request: ({ method, params }) =>
        new Promise((settle) => {
          const id = randomUUID();
          if (this.#asked.size >= limits.asks) {
            logger.warn('a server asks its session more than it may; the ask stays pending', { method });
            return;
          }
          this.#asked.set(id, {
            settle: (response) => {
              settle(response);
              return true;
            },
          });
          this.standing?.send({ jsonrpc: '2.0', id, method, ...(isObject(params) && { params }) });
        }),
      error: (error) => logger.warn('a server instance reported an error', { error: String(error) }),
    };
  }
}

/** URL mode needs an `elicitationId` on the revisions with sessions. */
function paramsOf({ method, params }: OpenAsk): { params?: JsonObject } {
  if (Object.keys(params).length === 0) return {};
  const isUrl = method === 'elicitation/create' && params.mode === 'url';
  return { params: isUrl ? { elicitationId: randomUUID(), ...params } : params };
}
