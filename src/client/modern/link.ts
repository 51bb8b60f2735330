/**
 * The client's side of 2026-07-28: no initialization, no session, and an envelope in each request.
 * Owns what `Client` declared once and the wire repeats in each request: name, capabilities, log level. Methods that
 * the revision does not have are answered here.
 */

import { AwaitError, CANCEL, defined, isObject, type JsonObject, objectOf } from '../../base/values.ts';
import type { Asks } from '../asks.ts';
import type { Endpoint } from '../endpoint.ts';
import type { ClientLink, LinkPorts } from '../link.ts';
import {
  asError,
  type ClientRequest,
  failureOf,
  isRequestId,
  type Reconnection,
  type RequestId,
  type Rpc,
  type RpcNotification,
  serverErrorIn,
} from '../message.ts';
import { type OnState, type Opened, RoundTripCall, type RoundTripPorts } from '../round-trips/round-trips.ts';
import { takeSaved } from '../round-trips/saved-call.ts';
import { META, RELEASED } from './dialect.ts';
import { exchange } from './exchange.ts';
import { RequestHeaders } from './headers.ts';
import { Listener } from './listener.ts';

const { revision: REVISION } = RELEASED;
const TASKS = `${META}/tasks`;
/** UnsupportedProtocolVersion. */
const UNSUPPORTED = -32022;

export interface ModernOptions extends LinkPorts {
  readonly endpoint: Endpoint;
  readonly asks: Asks;
  readonly reconnection: Reconnection;
  readonly maxRounds: number;
  readonly onState: OnState | undefined;
  /** Whether the server may make tasks of calls. */
  readonly tasks: boolean;
}

export class ModernLink implements ClientLink {
  readonly #options: ModernOptions;
  readonly #ports: RoundTripPorts;
  readonly #listener: Listener;
  readonly #headers = new RequestHeaders();
  /** Those that are not over, by the ids of their requests. */
  readonly #calls = new Map<RequestId, RoundTripCall>();
  /** The `_meta` of every request. */
  #envelope: JsonObject = {};

  constructor(options: ModernOptions) {
    this.#options = options;
    const { endpoint, deliver } = options;
    endpoint.protocolVersion = REVISION;
    const ports = { ...options, closed: endpoint.signal };
    this.#ports = {
      ...ports,
      dialect: RELEASED,
      open: (request, signal) => this.#open(request, signal, deliver),
      tell: () => Promise.reject(new Error(`${REVISION} has no messages but requests`)),
      // The disconnect is the cancellation.
      abandon: () => {},
    };
    this.#listener = new Listener({
      ...ports,
      open: (request, signal, hear) => this.#open(request, signal, hear),
    });
  }

  setProtocolVersion(): void {
    // Ignored: `Client` was given another version than the one on the wire.
  }

  async request(message: ClientRequest): Promise<void> {
    switch (message.method) {
      case 'initialize':
        return this.#discover(message);
      case 'ping':
        return this.#respond(message, {});
      case 'logging/setLevel':
        this.#envelope = { ...this.#envelope, [`${META}/logLevel`]: message.params?.level };
        return this.#respond(message, {});
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        return this.#subscribe(message);
      default:
        return this.#call(message);
    }
  }

  async notify({ method, params }: RpcNotification): Promise<void> {
    if (method === 'notifications/initialized') this.#listener.start();
    else if (method === CANCEL && isRequestId(params?.requestId)) {
      this.#calls.get(params.requestId)?.cancel(params.reason);
    }
    // Servers of this revision take no notifications over HTTP.
  }

  async answer(): Promise<void> {
    // To an ask that was taken back: servers of this revision wait for none.
  }

  close(): void {
    this.#listener.close();
    for (const call of this.#calls.values()) call.leave();
  }

  /** The server's declaration, as `Client` expects it, under the version that `Client` knows. */
  async #discover({ id, params }: ClientRequest): Promise<void> {
    const { protocolVersion, capabilities, clientInfo }: JsonObject = params ?? {};
    const { deliver, endpoint, tasks } = this.#options;
    // SDK v1's declaration of tasks, which is another revision's, is replaced by the extension.
    const { tasks: _v1, extensions, ...declared } = objectOf(capabilities);
    const all = { ...objectOf(extensions), ...(tasks && { [TASKS]: {} }) };
    this.#envelope = {
      [`${META}/protocolVersion`]: REVISION,
      [`${META}/clientInfo`]: clientInfo,
      [`${META}/clientCapabilities`]:
        Object.keys(all).length > 0 ? { ...declared, extensions: all } : declared,
    };
    const opened = await this.#open(
      { jsonrpc: '2.0', id, method: 'server/discover' },
      endpoint.signal,
      deliver,
    );
    const answer = await opened.answer;
    if ('error' in answer) return deliver(answer);
    const { supportedVersions, capabilities: has = {}, instructions, _meta } = answer.result;
    if (!isAmong(supportedVersions)) throw unsupported(supportedVersions);
    this.#listener.declared = objectOf(has);
    deliver({
      jsonrpc: '2.0',
      id,
      result: {
        protocolVersion,
        capabilities: has,
        serverInfo: _meta?.[`${META}/serverInfo`] ?? { name: 'unknown', version: '0' },
        ...defined({ instructions }),
      },
    });
  }

  async #subscribe({ id, method, params }: ClientRequest): Promise<void> {
    const uri = String(params?.uri);
    try {
      if (method === 'resources/subscribe') await this.#listener.subscribe(uri);
      else await this.#listener.unsubscribe(uri);
      this.#options.deliver({ jsonrpc: '2.0', id, result: {} });
    } catch (thrown) {
      this.#options.deliver(failureOf(id, asError(thrown)));
    }
  }

  async #call(message: ClientRequest): Promise<void> {
    const { request, saved } = takeSaved(message);
    const { id } = request;
    const call = new RoundTripCall(this.#portsFor(request), request, this.#options.tasks);
    this.#calls.set(id, call);
    const end = (): void => void this.#calls.delete(id);
    try {
      const { over } = saved === undefined ? await call.begin() : call.resume(saved);
      void over.finally(end);
    } catch (thrown) {
      end();
      throw thrown;
    }
  }

  #portsFor({ id, method }: ClientRequest): RoundTripPorts {
    if (method !== 'tools/list') return this.#ports;
    const drop = (tool: string, why: string): void =>
      this.#options.report(new Error(`The tool ${tool} is left out of the list: ${why}.`));
    const deliver = (message: Rpc): void => {
      const isList = 'result' in message && message.id === id;
      this.#ports.deliver(
        isList ? { ...message, result: this.#headers.learn(message.result, drop) } : message,
      );
    };
    return { ...this.#ports, deliver };
  }

  async #respond({ id }: ClientRequest, result: JsonObject): Promise<void> {
    this.#options.deliver({ jsonrpc: '2.0', id, result });
  }

  /** As `#exchange`; a request that was refused for its version is sent once more where the server has that version. */
  async #open(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened> {
    try {
      return await this.#exchange(request, signal, hear);
    } catch (thrown) {
      const error = serverErrorIn(thrown);
      if (error?.code !== UNSUPPORTED || !isObject(error.data)) throw thrown;
      if (!isAmong(error.data.supported)) throw unsupported(error.data.supported);
      return this.#exchange(request, signal, hear);
    }
  }

  /** One exchange; `hear` gets the messages before the response. */
  #exchange(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened> {
    const meta: JsonObject = { ...request.params?._meta, ...this.#envelope };
    const sent = { ...request, params: { ...request.params, _meta: meta } };
    const { endpoint, report } = this.#options;
    return exchange(endpoint, sent, { headers: this.#headers.of(request), signal, hear, report });
  }
}

function isAmong(versions: unknown): boolean {
  return Array.isArray(versions) && versions.includes(REVISION);
}

function unsupported(versions: unknown): AwaitError {
  const names = Array.isArray(versions) ? versions.join(', ') : String(versions);
  return new AwaitError(
    'bad-response',
    `The server does not support ${REVISION}. It supports: ${names}. SDK v1's transport speaks those of 2025.`,
  );
}
