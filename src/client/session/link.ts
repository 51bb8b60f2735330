/**
 * The revisions with sessions: the ordinary ones, and the drafts over them.
 * Owns the version: `Client` has its own list of versions and accepts no draft, so it is shown the version that it
 * asked for, while requests carry the negotiated one. A server that answers with another version is served as the SDK
 * would.
 */
import type { TransportSendOptions } from '@modelcontextprotocol/sdk/shared/transport.js';
import { AwaitError, CANCEL, deferred, isObject } from '../../base/values.ts';
import type { Asks } from '../asks.ts';
import type { Endpoint } from '../endpoint.ts';
import { drainBody } from '../event-stream.ts';
import type { ClientLink, LinkPorts } from '../link.ts';
import {
  asError,
  type ClientRequest,
  isAnswer,
  isRequestId,
  parseMessages,
  type Reconnection,
  type RequestId,
  type Rpc,
  type RpcAnswer,
  type RpcNotification,
} from '../message.ts';
import type { ClientDialect } from '../round-trips/dialect.ts';
import { type OnState, type Opened, RoundTripCall, type RoundTripPorts } from '../round-trips/round-trips.ts';
import { takeSaved } from '../round-trips/saved-call.ts';
import { Call, type CallOptions, type CallPorts } from './multi-turn.ts';

export interface SessionOptions extends LinkPorts {
  readonly revision: string;
  /** How calls that ask are spelled, where its asks end a turn. */
  readonly dialect?: ClientDialect;
  readonly endpoint: Endpoint;
  readonly asks: Asks;
  readonly reconnection: Reconnection;
  readonly maxRounds: number;
  readonly onState: OnState | undefined;
  /** The params of a call's task; without them calls do not become tasks. */
  readonly task: { readonly ttl?: number | undefined } | undefined;
}

export class SessionLink implements ClientLink {
  readonly #options: SessionOptions;
  /** How a call that asks is spoken of, once the server has agreed to it. */
  readonly #dialect: ClientDialect | undefined;
  /** Those that are not over, by the ids of their requests. */
  readonly #calls = new Map<RequestId, Call | RoundTripCall>();
  readonly #ports: CallPorts;
  /** The request that negotiates, and the version that the client itself named in it. */
  #initialize: { readonly id: RequestId; readonly version: unknown } | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { revision, dialect, endpoint } = options;
    this.#dialect = dialect;
    // A session that is given was negotiated by an earlier transport of this kind.
    if (endpoint.sessionId !== undefined) endpoint.protocolVersion = revision;
    this.#ports = {
      ...options,
      // Without SEP-1858 its events mean nothing.
      negotiated: () => this.#dialect === undefined && this.#isAgreed,
      deliver: (message) => this.#deliver(message),
    };
  }

  /** `Client` sets the version that it was shown, which is not the one on the wire where the draft was negotiated. */
  setProtocolVersion(version: string): void {
    const told = this.#isAgreed && version === this.#initialize?.version;
    if (!told) this.#options.endpoint.protocolVersion = version;
  }

  async request(message: ClientRequest, options: TransportSendOptions): Promise<void> {
    const { id } = message;
    const { resumptionToken, onresumptiontoken } = options;
    if (resumptionToken !== undefined && resumptionToken !== '') {
      const call = new Call(this.#ports, { id, onresumptiontoken });
      // Not awaited: the client waits for the response, and for nothing before it.
      void this.#keep(id, call, call.resume(resumptionToken)).catch(this.#ports.report);
    } else if (this.#dialect !== undefined && this.#isAgreed) {
      await this.#roundTrips(this.#dialect, message, onresumptiontoken);
    } else {
      const call = new Call(this.#ports, { id, onresumptiontoken });
      let { params } = message;
      if (message.method === 'initialize') {
        this.#initialize = { id, version: params?.protocolVersion };
        params = { ...params, protocolVersion: this.#options.revision };
      }
      await this.#keep(id, call, call.post(JSON.stringify({ ...message, params })));
    }
  }

  async notify(message: RpcNotification): Promise<void> {
    const { method, params } = message;
    if (method === CANCEL && isRequestId(params?.requestId)) {
      const call = this.#calls.get(params.requestId);
      call?.cancel(params.reason);
      // It has told the server itself, by the id that is in flight now.
      if (call instanceof RoundTripCall) return;
    }
    const status = await this.#post(message);
    if (method !== 'notifications/initialized' || status !== 202) return;
    new Call(this.#ports, {})
      .listen()
      .catch((error) => this.#options.endpoint.signal.aborted || this.#ports.report(error));
  }

  async answer(message: RpcAnswer): Promise<void> {
    await this.#post(message);
  }

  close(): void {
    for (const call of this.#calls.values()) if (call instanceof RoundTripCall) call.leave();
  }

  async resumeStream(lastEventId: string, options: Pick<CallOptions, 'onresumptiontoken'>): Promise<void> {
    await new Call(this.#ports, options).resume(lastEventId);
  }

  get #isAgreed(): boolean {
    return this.#options.endpoint.protocolVersion === this.#options.revision;
  }

  /** Returns once the server has taken the request, and forgets the call when it is over. */
  async #keep(
    id: RequestId,
    call: Call | RoundTripCall,
    begun: Promise<{ over: Promise<void> }>,
  ): Promise<void> {
    this.#calls.set(id, call);
    const end = (): void => void this.#calls.delete(id);
    try {
      const { over } = await begun;
      void over.finally(end);
    } catch (thrown) {
      end();
      throw thrown;
    }
  }

  async #roundTrips(
    dialect: ClientDialect,
    message: ClientRequest,
    onToken: CallOptions['onresumptiontoken'],
  ): Promise<void> {
    const { task } = this.#options;
    const { request, saved } = takeSaved(message);
    const isOurs =
      task !== undefined && request.method === 'tools/call' && request.params?.task === undefined;
    const asked = isOurs ? { ...request, params: { ...request.params, task } } : request;
    // A saved call has its task from the client that began it.
    const takesTasks = isOurs || (saved !== undefined && request.params?.task !== undefined);
    const ports = this.#roundTripPorts(dialect, onToken);
    const deliver = (answer: Rpc): void => ports.deliver(task === undefined ? answer : callable(answer));
    const isList = request.method === 'tools/list';
    const call = new RoundTripCall(isList ? { ...ports, deliver } : ports, asked, takesTasks);
    const begun = saved === undefined ? call.begin() : Promise.resolve(call.resume(saved));
    await this.#keep(request.id, call, begun);
  }

  #roundTripPorts(dialect: ClientDialect, onToken: CallOptions['onresumptiontoken']): RoundTripPorts {
    const { endpoint, maxRounds, onState, report } = this.#options;
    return {
      ...this.#ports,
      dialect,
      maxRounds,
      onState,
      closed: endpoint.signal,
      open: (request, signal) => this.#open(dialect, request, signal, onToken),
      tell: async (message) => {
        await drainBody((await endpoint.post(JSON.stringify(message))).body);
      },
      abandon: (requestId, reason) => {
        const params = { requestId, ...(typeof reason === 'string' && { reason }) };
        this.#post({ jsonrpc: '2.0', method: CANCEL, params }).catch((error) => report(asError(error)));
      },
    };
  }

  /** One request and its response, on a stream that is opened again where it breaks. */
  async #open(
    dialect: ClientDialect,
    request: ClientRequest,
    signal: AbortSignal,
    onresumptiontoken: CallOptions['onresumptiontoken'],
  ): Promise<Opened> {
    const { id } = request;
    const { promise: answer, resolve: settle, reject: fail } = deferred<RpcAnswer>();
    const deliver = (message: Rpc): void => {
      if (isAnswer(message) && message.id === id) settle(message);
      else this.#deliver(message);
    };
    const parse = (text: string): Rpc[] => parseMessages(text, dialect.read);
    const call = new Call({ ...this.#ports, deliver, parse }, { id, onresumptiontoken });
    const { over } = await call.post(JSON.stringify(request));
    const cancel = (): void => call.cancel();
    if (signal.aborted) cancel();
    else signal.addEventListener('abort', cancel);
    void over.then(() => {
      signal.removeEventListener('abort', cancel);
      fail(new AwaitError('stream', 'A request ended without its result; the call may have run.'));
    });
    return { answer };
  }

  async #post(message: Rpc): Promise<number> {
    const { status, body } = await this.#options.endpoint.post(JSON.stringify(message));
    await drainBody(body);
    return status;
  }

  #deliver(message: Rpc): void {
    this.#options.deliver(this.#incoming(message));
  }

  #incoming(message: Rpc): Rpc {
    const { revision, endpoint } = this.#options;
    const { id, version } = this.#initialize ?? {};
    if (id === undefined || !('result' in message) || message.id !== id) return message;
    if (message.result.protocolVersion !== revision) return message;
    endpoint.protocolVersion = revision;
    return { ...message, result: { ...message.result, protocolVersion: version } };
  }
}

/**
 * SDK v1's `Client` refuses to call tools whose list entry says that they run only as tasks; here the transport follows
 * tasks.
 */
function callable(message: Rpc): Rpc {
  if (!('result' in message) || !Array.isArray(message.result.tools)) return message;
  const tools = message.result.tools.map((tool: unknown) => {
    const execution = isObject(tool) ? tool.execution : undefined;
    if (!isObject(execution) || execution.taskSupport !== 'required') return tool;
    return { ...Object(tool), execution: { ...execution, taskSupport: 'optional' } };
  });
  return { ...message, result: { ...message.result, tools } };
}
