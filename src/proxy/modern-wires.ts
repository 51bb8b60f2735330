/** How requests of 2026-07-28 reach a server: each a POST, or all in one pair of pipes. */
import type { OpenAccount } from '../base/budget.ts';
import { ACKNOWLEDGED, AwaitError, CANCEL, type JsonObject, objectOf } from '../base/values.ts';
import { Endpoint } from '../client/endpoint.ts';
import {
  Attempts,
  type ClientRequest,
  isRequestId,
  isUntaken,
  RESTARTS,
  type RequestId,
  type Rpc,
  type RpcAnswer,
  retry,
  serverErrorIn,
} from '../client/message.ts';
import { META, RELEASED } from '../client/modern/dialect.ts';
import { exchange } from '../client/modern/exchange.ts';
import { RequestHeaders } from '../client/modern/headers.ts';
import type { Opened } from '../client/round-trips/round-trips.ts';
import { toolPages } from '../host/tool-pages.ts';
import { RATE as CHILD_RATE } from './child.ts';
import type { LinkEvents, OpenLink, PeerLink, PeerLogger } from './link.ts';
import {
  type Listening,
  type ListeningPorts,
  type MayRead,
  ModernPeerLink,
  type ModernWire,
} from './modern.ts';
import { type BoundReply, RATE as REMOTE_RATE, type RemoteOptions } from './remote.ts';

/** A request whose headers do not say what its arguments say. */
const HEADER_MISMATCH = -32020;
/** Most warnings that the wire logs about one server. */
const WARNINGS = 20;

/** A remote server of 2026-07-28. */
export function openModernRemote(
  remote: RemoteOptions,
  logger: PeerLogger,
  listens: boolean,
  account: OpenAccount,
  events: LinkEvents,
  bound: BoundReply,
  listening?: (ports: ListeningPorts) => Listening,
): PeerLink {
  const wire = openModernWire(remote, logger, bound, () => link.ready());
  const link = new ModernPeerLink({ wire, logger, listens, account, rate: REMOTE_RATE, listening }, events);
  return link;
}

/** @param mayRead asked before each piece of a reply */
export function openModernWire(
  { url, headers }: RemoteOptions,
  logger: PeerLogger,
  bound: BoundReply,
  mayRead: MayRead,
): ModernWire {
  const endpoint = new Endpoint(new URL(url), { headers }, (response) => bound(response, { mayRead }));
  endpoint.protocolVersion = RELEASED.revision;
  return new HttpWire(endpoint, logger);
}

class HttpWire implements ModernWire {
  readonly #endpoint: Endpoint;
  readonly #logger: PeerLogger;
  readonly #headers = new RequestHeaders();
  #learning: Promise<void> | undefined;
  /** Warnings so far: about messages that the wire dropped, and tools that it left out of a list. */
  #warned = 0;

  constructor(endpoint: Endpoint, logger: PeerLogger) {
    this.#endpoint = endpoint;
    this.#logger = logger;
  }

  async open(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened> {
    // A first request says whether the server is there; others outlast its restart.
    const isFirst = request.method === 'server/discover';
    const attempts = new Attempts(RESTARTS, signal);
    const send = (): Promise<Opened> => this.#exchange(request, signal, hear);
    try {
      const opened = await (isFirst ? send() : retry(send, attempts, isUntaken));
      if (request.method !== 'tools/list') return opened;
      // Without the tools whose annotations are wrong, as the revision wants it.
      const drop = (tool: string, why: string): void =>
        this.#warn('a tool is left out of the list', { tool, why });
      const learn = (list: RpcAnswer): RpcAnswer =>
        'error' in list ? list : { ...list, result: this.#headers.learn(list.result, drop) };
      return { answer: opened.answer.then(learn) };
    } catch (thrown) {
      if (request.method !== 'tools/call' || serverErrorIn(thrown)?.code !== HEADER_MISMATCH) throw thrown;
      // Which arguments are repeated in headers is in the list, which another process may have got.
      this.#learning ??= this.#learn(request, signal).finally(() => {
        this.#learning = undefined;
      });
      await this.#learning;
      return send();
    }
  }

  async close(): Promise<void> {
    this.#endpoint.close();
  }

  kill(): void {
    this.#endpoint.close();
  }

  #exchange(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened> {
    return exchange(this.#endpoint, request, {
      headers: this.#headers.of(request),
      signal: AbortSignal.any([signal, this.#endpoint.signal]),
      hear,
      report: (error) => this.#warn('a message of a server was dropped', { error }),
    });
  }

  #warn(message: string, facts: JsonObject): void {
    this.#warned += 1;
    if (this.#warned <= WARNINGS) this.#logger.warn(message, facts);
  }

  async #learn({ id, params }: ClientRequest, signal: AbortSignal): Promise<void> {
    let page = 0;
    const list = async (cursor: JsonObject): Promise<Rpc> => {
      const asked = { _meta: params?._meta, ...cursor };
      const request: ClientRequest = {
        jsonrpc: '2.0',
        id: `${id}~tools~${page++}`,
        method: 'tools/list',
        params: asked,
      };
      return (await this.open(request, signal, () => {})).answer;
    };
    for await (const _ of toolPages(list));
  }
}

/** A child of 2026-07-28, whose pipes are a link of the kind that `open` makes. */
export function openModernChild(
  open: OpenLink,
  logger: PeerLogger,
  listens: boolean,
  account: OpenAccount,
  events: LinkEvents,
): PeerLink {
  const wire = new PipeWire();
  const link = new ModernPeerLink({ wire, logger, listens, account, rate: CHILD_RATE }, events);
  wire.link = open({
    message: (message) => {
      if (!wire.took(message)) events.message(message);
    },
    ended: (reason) => link.ended(reason),
  });
  return link;
}

interface PipeRequest {
  readonly settle: (answer: RpcAnswer) => void;
  readonly hear: (message: Rpc) => void;
}

class PipeWire implements ModernWire {
  link: PeerLink | undefined;
  readonly #waiting = new Map<RequestId, PipeRequest>();

  async open(request: ClientRequest, signal: AbortSignal, hear: (message: Rpc) => void): Promise<Opened> {
    const { id } = request;
    const cancelled = (): AwaitError => new AwaitError('stream', 'the request was cancelled');
    if (signal.aborted) throw cancelled();
    const answer = new Promise<RpcAnswer>((resolve, reject) => {
      const cancel = (): void => {
        if (!this.#waiting.delete(id)) return;
        reject(cancelled());
        this.link?.send({ jsonrpc: '2.0', method: CANCEL, params: { requestId: id } });
      };
      const settle = (answer: RpcAnswer): void => {
        signal.removeEventListener('abort', cancel);
        resolve(answer);
      };
      this.#waiting.set(id, { settle, hear });
      signal.addEventListener('abort', cancel, { once: true });
      this.link?.send({ ...request });
    });
    return { answer };
  }

  /** Gives a message to the request that it is for. @returns false for one that is for none */
  took(message: JsonObject): boolean {
    const { id, method, params } = message;
    if (method === undefined) {
      const waiting = isRequestId(id) ? this.#waiting.get(id) : undefined;
      if (isRequestId(id)) this.#waiting.delete(id);
      waiting?.settle(message as unknown as RpcAnswer);
      return true;
    }
    // Servers of this revision send no requests.
    if (id !== undefined) return true;
    const of = objectOf(objectOf(params)._meta)[`${META}/subscriptionId`];
    const stream = isRequestId(of) ? this.#waiting.get(of) : undefined;
    if (stream === undefined) return method === ACKNOWLEDGED;
    stream.hear(message as unknown as Rpc);
    return true;
  }

  async close(): Promise<void> {
    await this.link?.close();
  }

  kill(reason?: string): void {
    this.link?.kill(reason);
  }
}
