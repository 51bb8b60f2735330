/**
 * A request of the client, over as many turns as it takes (SEP-1858).
 *
 * Owns its stream's position: the last event's id, and the turn whose answers are held back. Invariants:
 * 1. An ask that came before `buffer_input` is answered at once; one that came after it never alone.
 * 2. After `input_required` nothing of that stream is read, and it is not opened again. All answers of the turn go out
 *    in one POST, in the order of the asks, and its reply goes on with the same request.
 * 3. A stream that broke before that is opened again by GET, if one of its own events had an id. Where none had, and
 *    where no reply came, the answers of a turn are sent again: the same POST twice is one turn.
 * 4. While the draft is not negotiated its events mean nothing, and this is what the SDK's transport does.
 *
 * Each request is a `Call` (`session/multi-turn.ts`), which owns its stream's position and follows it from turn to
 * turn. The POST that begins a turn carries that position, so the same one twice is one turn: while its reply is
 * lost it is sent again, and once an event of the reply had an id the rest comes by GET. The other drafts use it for
 * one exchange at a time, because streams break.
 *
 * The draft's two events have no `data:` line, and standard parsers drop such events. So the lines are completed
 * before `eventsource-parser` reads them (`src/client/event-stream.ts`), and a block without data that has an id
 * moves the stream's last event id, as the standard says. After `input_required` the rest of the body is discarded,
 * for a quarter of a second at most: cancelling a body would close its connection.
 *
 * `Client` identifies asks by their ids alone, and servers may count them anew on each stream: an id that is open on
 * another stream is renamed on its way in (`src/client/asks.ts`). When a call ends, its open asks are cancelled at
 * the client. When it cannot continue (the POST of its answers is refused, its stream is lost for good), `Client`
 * gets an error response; the SDK's transport would leave it waiting until its time-out.
 *
 * Differences from `StreamableHTTPClientTransport` on ordinary revisions: a stream that delivered an error is not
 * opened again, nor one that breaks after its request was cancelled; after a close nothing is sent.
 */

import { mediaType } from '../../base/bounded-response.ts';
import { AwaitError, CANCEL, hasCode } from '../../base/values.ts';
import type { AskSender, Asks } from '../asks.ts';
import { type Endpoint, EndpointError } from '../endpoint.ts';
import { drainBody, readEvents } from '../event-stream.ts';
import {
  Attempts,
  asError,
  type ClientRequest,
  failureOf,
  forRepeats,
  isAnswer,
  isLost,
  isRequest,
  isRequestId,
  parseMessages,
  type Reconnection,
  type RequestId,
  type Rpc,
  type RpcAnswer,
  type RpcNotification,
  retry,
} from '../message.ts';

export interface CallPorts {
  readonly endpoint: Endpoint;
  readonly asks: Asks;
  readonly reconnection: Reconnection;
  /** Whether the server agreed to the draft. */
  readonly negotiated: () => boolean;
  /** Parses the messages of a body or of an event; by default JSON-RPC's own. */
  readonly parse?: (text: string) => Rpc[];
  readonly deliver: (message: Rpc) => void;
  readonly report: (error: Error) => void;
}

export interface CallOptions {
  /** The request that waits for a response; without one this is a stream of the server's own. */
  readonly id?: RequestId | undefined;
  readonly onresumptiontoken?: ((token: string) => void) | undefined;
}

/** The answers of a turn, as they go out. */
interface SentTurn {
  readonly body: string;
  /** The id of the `input_required` that they answer. */
  readonly lastEventId: string;
  readonly attempts: Attempts;
}

export class Call implements AskSender {
  readonly #ports: CallPorts;
  readonly #id: RequestId | undefined;
  readonly #onToken: ((token: string) => void) | undefined;
  #lastEventId: string | undefined;
  #retry: number | undefined;
  #turn: AskTurn | undefined;
  /** Until its reply is there. */
  #sent: SentTurn | undefined;
  /** Turns in a row that ask nothing: only the first comes at once. */
  readonly #idle: Attempts;
  /** A stream of the server's own opens again without an id; SEP-1858's events have no meaning there. */
  #standing = false;
  /** The response on this stream names another request: the one that was resumed. */
  #resumed = false;
  #answered = false;
  #cancelled = false;

  constructor(ports: CallPorts, { id, onresumptiontoken }: CallOptions) {
    this.#ports = ports;
    this.#id = id;
    this.#onToken = onresumptiontoken;
    this.#idle = new Attempts({ ...ports.reconnection, maxRetries: Infinity }, ports.endpoint.signal, 1);
  }

  /** Sends the request. Returns once the server has taken it; `over` resolves when nothing more can come of it. */
  async post(body: string): Promise<{ over: Promise<void> }> {
    const response = await this.#ports.endpoint.post(body);
    if (mediaType(response) === 'text/event-stream') return { over: this.#follow(response) };
    if (response.status === 202) await drainBody(response.body);
    else await this.#readJson(response);
    return { over: Promise.resolve() };
  }

  /** Resumes a request whose stream was lost, perhaps by another client. */
  async resume(lastEventId: string): Promise<{ over: Promise<void> }> {
    this.#resumed = true;
    try {
      return { over: this.#follow(await this.#ports.endpoint.get(lastEventId)) };
    } catch (thrown) {
      if (this.#id === undefined) throw thrown;
      this.#fail(thrown);
      return { over: Promise.resolve() };
    }
  }

  /** Opens the stream of the server's own messages; a server need not have one. */
  async listen(): Promise<{ over: Promise<void> }> {
    this.#standing = true;
    return { over: this.#follow(await this.#ports.endpoint.get()) };
  }

  /** The client's answer to an ask of this stream, under the id on the wire. */
  async answer(ask: RequestId, answer: RpcAnswer): Promise<void> {
    const named = { ...answer, id: ask };
    if (this.#turn?.has(ask)) return this.#turn.answer(ask, named);
    const { body } = await this.#ports.endpoint.post(JSON.stringify(named));
    await drainBody(body);
  }

  /** An ask that the server takes back. */
  withdraw(ask: RequestId): void {
    this.#turn?.withdraw(ask);
  }

  /** The client waits no longer: no turn of this call begins again. */
  cancel(): void {
    this.#cancelled = true;
    this.#abandonTurn('The request was cancelled');
  }

  async #follow(first: Response | undefined): Promise<void> {
    try {
      let response = first;
      while (response !== undefined) {
        const suspended = await this.#read(response);
        if (this.#answered || this.#isOver) break;
        const sent = this.#sent;
        // A stream that ended too early is reopened: by GET if it had an event id, else by the request that began it.
        if (suspended) response = await this.#nextTurn();
        else if (this.#lastEventId !== undefined || sent === undefined) response = await this.#reopen();
        else response = (await sent.attempts.next(this.#retry)) ? await this.#send(sent) : undefined;
      }
      if (!this.#answered) this.#fail(undefined);
    } catch (thrown) {
      this.#fail(thrown);
    } finally {
      this.#abandonTurn('The request that asked this has ended');
    }
  }

  /** Whether it ended with `input_required`. */
  async #read(response: Response): Promise<boolean> {
    if (mediaType(response) === 'application/json') {
      await this.#readTurnJson(response);
      return false;
    }
    if (response.body === null) return false;
    try {
      const onRetry = (milliseconds: number): void => {
        this.#retry = milliseconds;
      };
      for await (const { id, event, data } of readEvents(response.body, onRetry)) {
        if (id) {
          this.#lastEventId = id;
          this.#onToken?.(id);
        }
        if (this.#heeds && event === 'buffer_input') this.#turn ??= new AskTurn();
        else if (this.#heeds && event === 'input_required') return true;
        else if (data !== '' && (event === undefined || event === 'message')) this.#hear(data);
      }
    } catch (thrown) {
      // Read again it would be as long again.
      if (isTooLong(thrown)) throw thrown;
      if (!this.#closed)
        this.#ports.report(new Error(`SSE stream disconnected: ${thrown}`, { cause: thrown }));
    }
    return false;
  }

  async #readTurnJson(response: Response): Promise<void> {
    try {
      await this.#readJson(response);
      this.#sent = undefined;
    } catch (thrown) {
      if (this.#sent === undefined || !isLost(thrown)) throw thrown;
      this.#ports.report(asError(thrown));
    }
  }

  async #readJson(response: Response): Promise<void> {
    const text = await response.text();
    if (mediaType(response) !== 'application/json') {
      throw new EndpointError(-1, `Unexpected content type: ${response.headers.get('content-type')}`, text);
    }
    for (const message of this.#parse(text)) this.#take(message);
  }

  #parse(text: string): Rpc[] {
    return (this.#ports.parse ?? parseMessages)(text);
  }

  #hear(data: string): void {
    try {
      for (const message of this.#parse(data)) this.#take(message);
    } catch (thrown) {
      this.#ports.report(asError(thrown));
    }
  }

  #take(message: Rpc): void {
    if (isRequest(message)) this.#ask(message);
    else if (isAnswer(message)) {
      this.#answered = true;
      this.#ports.deliver(this.#resumed && this.#id !== undefined ? { ...message, id: this.#id } : message);
    } else this.#ports.deliver(this.#withdrawn(message) ?? message);
  }

  /** The notification that takes back an ask, under the name that the client knows the ask by. */
  #withdrawn({ jsonrpc, method, params }: RpcNotification): Rpc | undefined {
    if (method !== CANCEL || !isRequestId(params?.requestId)) return undefined;
    const { asks } = this.#ports;
    const name = asks.nameOf(this, params.requestId) ?? params.requestId;
    const ask = asks.take(name);
    ask?.asker.withdraw(ask.id);
    return { jsonrpc, method, params: { ...params, requestId: name } };
  }

  #ask(message: ClientRequest): void {
    // A reopened stream may repeat an ask.
    if (this.#turn?.has(message.id)) return;
    // The client cancelled the call, and without a turn an answer cannot be held.
    if (this.#cancelled && this.#ports.negotiated()) return;
    const name = this.#ports.asks.open(this, message.id);
    if (name === undefined) return;
    this.#turn?.expect(message.id);
    this.#ports.deliver(name === message.id ? message : { ...message, id: name });
  }

  /** Waits for the answers, for hours if need be, and sends them. */
  async #nextTurn(): Promise<Response | undefined> {
    const lastEventId = this.#lastEventId;
    if (lastEventId === undefined) {
      throw new AwaitError(
        'stream',
        'The server sent `input_required` without an id, so no answer can name it.',
      );
    }
    const answers = await (this.#turn ?? new AskTurn()).answers();
    if (answers === undefined) return undefined;
    // The next turn has another stream; missed events of this one cannot be requested there.
    this.#turn = undefined;
    this.#lastEventId = undefined;
    if (answers.length > 0) this.#idle.reset();
    else await this.#idle.next(this.#retry);
    const { reconnection, endpoint } = this.#ports;
    const attempts = new Attempts(forRepeats(reconnection), endpoint.signal);
    this.#sent = { body: JSON.stringify(answers), lastEventId, attempts };
    return this.#send(this.#sent);
  }

  /** Repeated while its reply is lost on the way. */
  async #send({ body, lastEventId, attempts }: SentTurn): Promise<Response | undefined> {
    const once = async (): Promise<Response | undefined> =>
      this.#isOver ? undefined : this.#ports.endpoint.post(body, { 'last-event-id': lastEventId });
    const response = await retry(once, attempts, isLost, this.#retry);
    if (response?.status !== 202) return response;
    throw new AwaitError(
      'stream',
      'The server answered 202 to the answers of a turn, so there is no result.',
    );
  }

  async #reopen(): Promise<Response | undefined> {
    if (this.#lastEventId === undefined && !this.#standing) return undefined;
    const { endpoint, reconnection, report } = this.#ports;
    const attempts = new Attempts(reconnection, endpoint.signal);
    while (await attempts.next(this.#retry)) {
      if (this.#cancelled) return undefined;
      try {
        return await endpoint.get(this.#lastEventId);
      } catch (thrown) {
        if (this.#closed) return undefined;
        const error = asError(thrown);
        // Both, as the SDK's transport does: the first has the code.
        report(error);
        report(new Error(`Failed to reconnect SSE stream: ${error.message}`, { cause: error }));
      }
    }
    if (this.#closed) return undefined;
    report(new Error(`Maximum reconnection attempts (${reconnection.maxRetries}) exceeded.`));
    return undefined;
  }

  /** Without this the client would wait until its own time is up, and not hear why. */
  #fail(thrown: unknown): void {
    if (this.#closed) return;
    if (thrown !== undefined) this.#ports.report(asError(thrown));
    const isOurs = this.#ports.negotiated() || isTooLong(thrown);
    if (this.#id === undefined || this.#cancelled || !isOurs) return;
    const error =
      thrown === undefined
        ? new AwaitError('stream', 'The stream of a request ended without its result; the call may have run.')
        : asError(thrown);
    if (thrown === undefined) this.#ports.report(error);
    this.#ports.deliver(failureOf(this.#id, error));
  }

  /** Withdraws from the user's screen the asks that can no longer be answered. */
  #abandonTurn(reason: string): void {
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.giveUp();
    for (const ask of turn?.asked ?? []) {
      const name = this.#ports.asks.nameOf(this, ask);
      if (name === undefined) continue;
      this.#ports.asks.take(name);
      this.#ports.deliver({ jsonrpc: '2.0', method: CANCEL, params: { requestId: name, reason } });
    }
  }

  get #heeds(): boolean {
    return this.#ports.negotiated() && !this.#standing && !this.#answered;
  }

  get #isOver(): boolean {
    return this.#cancelled || this.#closed;
  }

  get #closed(): boolean {
    return this.#ports.endpoint.signal.aborted;
  }
}

/** A message of the server exceeded its bound. */
function isTooLong(thrown: unknown): boolean {
  return hasCode(thrown, 'limit');
}

// --- asks of a turn, and their answers ---

/** Collects asks between `buffer_input` and `input_required`, and their answers until all are there. */

class AskTurn {
  /** In the order of the asks. */
  readonly #answers = new Map<RequestId, RpcAnswer | undefined>();
  /** Asks without an answer. */
  #open = 0;
  /** Set once `input_required` has come: resolves the promise of `answers`. */
  #settle: ((answers: readonly RpcAnswer[] | undefined) => void) | undefined;

  get asked(): RequestId[] {
    return [...this.#answers.keys()];
  }

  has(id: RequestId): boolean {
    return this.#answers.has(id);
  }

  expect(id: RequestId): void {
    if (!this.#waitsFor(id)) this.#open += 1;
    this.#answers.set(id, undefined);
  }

  answer(id: RequestId, answer: RpcAnswer): void {
    if (this.#waitsFor(id)) this.#open -= 1;
    this.#answers.set(id, answer);
    this.#check();
  }

  /** The server no longer wants to know. */
  withdraw(id: RequestId): void {
    if (this.#waitsFor(id)) this.#open -= 1;
    this.#answers.delete(id);
    this.#check();
  }

  /** All answers, however long they take; none once the turn is given up. */
  answers(): Promise<readonly RpcAnswer[] | undefined> {
    return new Promise((resolve) => {
      this.#settle = resolve;
      this.#check();
    });
  }

  giveUp(): void {
    this.#settle?.(undefined);
  }

  #waitsFor(id: RequestId): boolean {
    return this.#answers.has(id) && this.#answers.get(id) === undefined;
  }

  #check(): void {
    if (this.#open > 0 || this.#settle === undefined) return;
    this.#settle([...this.#answers.values()].filter((answer) => answer !== undefined));
  }
}
