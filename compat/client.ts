/**
 * The transport for a client of SDK v1, whose `Client` stays as it is.
 *
 * Owns the connection's life and the version: `Client` has a list of versions of its own and knows no draft, so it
 * is told that the server agreed to what it asked for, and every request says what was agreed on.
 */
import type { Transport, TransportSendOptions } from '@modelcontextprotocol/sdk/shared/transport.js';
import { Asks } from '../src/client/asks.ts';
import { Endpoint, type EndpointOptions } from '../src/client/endpoint.ts';
import { drainBody } from '../src/client/event-stream.ts';
import { asError } from '../src/client/failure.ts';
import {
  type Answer,
  isAnswer,
  isRequest,
  isRequestId,
  type RequestId,
  type Rpc,
  type RpcNotification,
  type RpcRequest,
} from '../src/client/message.ts';
import { RECONNECTION, type Reconnection } from '../src/client/reconnection.ts';
import { AwaitError } from '../src/error.ts';
import { Call, type CallOptions, type CallPorts } from './sep-1858/client.ts';

/** What this transport speaks beside the revisions that the SDK speaks itself. */
export type ClientRevision = 'DRAFT-SEP-1858';

const REVISIONS: ReadonlySet<string> = new Set<ClientRevision>(['DRAFT-SEP-1858']);

export interface AwaitClientOptions extends EndpointOptions {
  /** Asked for first; a server that does not speak it answers with another, and is served as the SDK would. */
  readonly revision: ClientRevision;
  /** How a stream that broke is opened again; each has the SDK's default. */
  readonly reconnectionOptions?: Partial<Reconnection> | undefined;
}

export class AwaitClientTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: Transport['onmessage'];
  readonly #revision: ClientRevision;
  readonly #endpoint: Endpoint;
  readonly #asks = new Asks<Call>();
  /** Those that are not over, by the ids of their requests. */
  readonly #calls = new Map<RequestId, Call>();
  readonly #ports: CallPorts;
  /** The request that negotiates, and the version that the client itself named in it. */
  #initialize: { readonly id: RequestId; readonly version: unknown } | undefined;
  #started = false;

  /** Throws an AwaitError (`bad-option`) for a revision that this package does not know. */
  constructor(url: URL | string, options: AwaitClientOptions) {
    if (!REVISIONS.has(options.revision)) {
      const known = [...REVISIONS].join(', ');
      throw new AwaitError('bad-option', `revision '${options.revision}' is not one of: ${known}.`);
    }
    this.#revision = options.revision;
    this.#endpoint = new Endpoint(new URL(url), options);
    // A session that is given was negotiated by an earlier transport of this kind.
    if (options.sessionId !== undefined) this.#endpoint.protocolVersion = this.#revision;
    this.#ports = {
      endpoint: this.#endpoint,
      asks: this.#asks,
      reconnection: { ...RECONNECTION, ...options.reconnectionOptions },
      negotiated: () => this.#endpoint.protocolVersion === this.#revision,
      deliver: (message) => this.#deliver(message),
      report: (error) => this.onerror?.(error),
    };
  }

  /** Kept by a client that means to go on with the session, in another process. */
  get sessionId(): string | undefined {
    return this.#endpoint.sessionId;
  }

  /** The version on the wire, which is the draft's where the server agreed to it. */
  get protocolVersion(): string | undefined {
    return this.#endpoint.protocolVersion;
  }

  /** `Client` tells the version it was told; that one is not the one on the wire where the draft was agreed on. */
  setProtocolVersion(version: string): void {
    const told = this.#ports.negotiated() && version === this.#initialize?.version;
    if (!told) this.#endpoint.protocolVersion = version;
  }

  async start(): Promise<void> {
    if (this.#started) {
      throw new Error(
        'AwaitClientTransport already started! Note that Client.connect() calls start() itself.',
      );
    }
    this.#started = true;
  }

  /** Rejects with an EndpointError, whose `code` is the HTTP status, where the server refuses the message. */
  async send(message: Rpc, options: TransportSendOptions = {}): Promise<void> {
    try {
      if (isAnswer(message)) await this.#answer(message);
      else if (isRequest(message)) await this.#request(message, options);
      else await this.#notify(message);
    } catch (thrown) {
      this.onerror?.(asError(thrown));
      throw thrown;
    }
  }

  /** Leaves the session to the server: `terminateSession` ends it. */
  async close(): Promise<void> {
    this.#endpoint.close();
    this.onclose?.();
  }

  async terminateSession(): Promise<void> {
    try {
      await this.#endpoint.delete();
    } catch (thrown) {
      this.onerror?.(asError(thrown));
      throw thrown;
    }
  }

  /** With the code that the user's browser came back with, after an `UnauthorizedError`. */
  finishAuth(authorizationCode: string): Promise<void> {
    return this.#endpoint.finishAuth(authorizationCode);
  }

  /** Goes on with a stream that another client of this session lost. */
  async resumeStream(
    lastEventId: string,
    options: Pick<CallOptions, 'onresumptiontoken'> = {},
  ): Promise<void> {
    await new Call(this.#ports, options).resume(lastEventId);
  }

  async #request(message: RpcRequest, options: TransportSendOptions): Promise<void> {
    const { id } = message;
    const { resumptionToken, onresumptiontoken } = options;
    const call = new Call(this.#ports, { id, onresumptiontoken });
    this.#calls.set(id, call);
    const end = (): void => void this.#calls.delete(id);
    if (resumptionToken !== undefined && resumptionToken !== '') {
      // Not awaited: the client waits for the response, and for nothing before it.
      void call
        .resume(resumptionToken)
        .then(({ over }) => over, this.#ports.report)
        .finally(end);
      return;
    }
    try {
      const { over } = await call.post(JSON.stringify(this.#outgoing(message)));
      void over.finally(end);
    } catch (thrown) {
      end();
      throw thrown;
    }
  }

  async #answer(answer: Answer): Promise<void> {
    const ask = answer.id === undefined ? undefined : this.#asks.take(answer.id);
    if (ask !== undefined) return ask.asker.answer(ask.id, answer);
    await this.#post(answer);
  }

  async #notify(message: RpcNotification): Promise<void> {
    const { method, params } = message;
    if (method === 'notifications/cancelled' && isRequestId(params?.requestId)) {
      this.#calls.get(params.requestId)?.cancel();
    }
    const status = await this.#post(message);
    if (method !== 'notifications/initialized' || status !== 202) return;
    const { signal } = this.#endpoint;
    new Call(this.#ports, {}).listen().catch((error) => signal.aborted || this.#ports.report(error));
  }

  async #post(message: Rpc): Promise<number> {
    const { status, body } = await this.#endpoint.post(JSON.stringify(message));
    await drainBody(body);
    return status;
  }

  #outgoing(message: RpcRequest): RpcRequest {
    if (message.method !== 'initialize') return message;
    this.#initialize = { id: message.id, version: message.params?.protocolVersion };
    return { ...message, params: { ...message.params, protocolVersion: this.#revision } };
  }

  #deliver(message: Rpc): void {
    try {
      this.onmessage?.(this.#incoming(message));
    } catch (thrown) {
      this.#ports.report(asError(thrown));
    }
  }

  #incoming(message: Rpc): Rpc {
    const { id, version } = this.#initialize ?? {};
    if (id === undefined || !('result' in message) || message.id !== id) return message;
    if (message.result.protocolVersion !== this.#revision) return message;
    this.#endpoint.protocolVersion = this.#revision;
    return { ...message, result: { ...message.result, protocolVersion: version } };
  }
}
