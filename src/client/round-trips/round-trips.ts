/**
 * A request of the client, over as many round trips as it takes (SEP-2322, its first draft, 2026-07-28). Owns the
 * call's state: the next message, the open asks, and the task that it may have become. Invariants:
 * 1. A retry has a new id, the same method and params, and only the last round's answers and `requestState`: unchanged,
 *    and absent if it was absent.
 * 2. Calls share no state: all of it is here, and an ask has an id of its own toward the client.
 * 3. The client gets one response, under the id of its request, or none once it has cancelled it.
 * 4. After a cancellation nothing is sent but that cancellation.
 */

import { AwaitError, defined, isObject, type JsonObject, optionError } from '../../base/values.ts';
import {
  Attempts,
  asError,
  type ClientRequest,
  failureOf,
  forRepeats,
  isLost,
  isUntaken,
  type Reconnection,
  type RequestId,
  type RpcAnswer,
  retry,
  served,
  serverErrorIn,
} from '../message.ts';
import type { ClientDialect } from './dialect.ts';
import { type Input, malformed, type ReadResult, readAnswer } from './reading.ts';
import { Refused, type Responses, Round, type RoundPorts } from './round.ts';
import { type InputRequests, isSavedCall, lasting, type SavedCall } from './saved-call.ts';
import { TaskFollower } from './task.ts';

/** Called with each state from which a call could be resumed; with undefined once it has its response. */
export type OnState = (saved: SavedCall | undefined, call: string) => void | Promise<void>;

export interface RoundTripPorts extends RoundPorts {
  readonly dialect: ClientDialect;
  /** How often one request may be answered with `input_required`. */
  readonly maxRounds: number;
  readonly reconnection: Reconnection;
  readonly onState: OnState | undefined;
  /** Aborted once nothing can be sent any more. */
  readonly closed: AbortSignal;
  /** Sends a request. Resolves once the server has taken it; throws an EndpointError where it does not. */
  open(request: ClientRequest, signal: AbortSignal): Promise<Opened>;
  /** Sends a message whose response is a status alone. */
  tell(message: JsonObject): Promise<void>;
  /** The client no longer waits for a request in flight, whose signal is aborted next. */
  abandon(id: RequestId, reason: unknown): void;
}

export interface Opened {
  /** Rejects where the server ends its reply without one. */
  readonly answer: Promise<RpcAnswer>;
}

export class RoundTripCall {
  readonly #ports: RoundTripPorts;
  readonly #request: ClientRequest;
  readonly #takesTasks: boolean;
  readonly #stop = new AbortController();
  /** The name that the call is kept under. */
  #name: string = crypto.randomUUID();
  #sent = 0;
  #inFlight: RequestId | undefined;
  #round: Round | undefined;
  #task: TaskFollower | undefined;
  #leaveRound: (reason: Error) => void = () => {};
  /** Whether a resumable state was reported. */
  #noted = false;

  /** @param takesTasks whether a task in place of the result is this call's to follow, and not its caller's */
  constructor(ports: RoundTripPorts, request: ClientRequest, takesTasks: boolean) {
    this.#ports = ports;
    this.#request = request;
    // A task in reply to any other method is invalid (SEP-2663, 2025-11-25): it is not a result of that method.
    this.#takesTasks = takesTasks && request.method === 'tools/call';
  }

  /** Sends the request. Returns once the server has taken it; `over` resolves when nothing more can come of it. */
  async begin(): Promise<{ over: Promise<void> }> {
    try {
      const { answer } = await this.#open(this.#request);
      return { over: this.#follow(answer.then((first) => this.#run(first))) };
    } catch (thrown) {
      const isTold = this.#ports.dialect.refusesInBody && serverErrorIn(thrown) !== undefined;
      // A client that has left gets no error.
      if (!isTold && !this.#stop.signal.aborted) throw thrown;
      return { over: this.#follow(Promise.reject(thrown)) };
    }
  }

  /** Resumes a call that another client left, perhaps in another process. */
  resume(saved: unknown): { over: Promise<void> } {
    return { over: this.#follow(this.#goOn(saved)) };
  }

  cancel(reason: unknown): void {
    if (this.#stop.signal.aborted) return;
    if (this.#inFlight !== undefined) this.#ports.abandon(this.#inFlight, reason);
    this.leave();
    this.#giveUp('The request was cancelled');
    this.#cancelTask();
  }

  /** The connection is closed: no message is sent either way. */
  leave(): void {
    this.#stop.abort();
    this.#leaveRound(new Error('The request was given up'));
  }

  async #follow(outcome: Promise<RpcAnswer>): Promise<void> {
    try {
      const answer = await outcome;
      if (this.#stop.signal.aborted) return;
      this.#ports.deliver({ ...answer, id: this.#request.id });
      await this.#note(undefined);
    } catch (thrown) {
      this.#fail(asError(thrown));
    }
  }

  async #goOn(saved: unknown): Promise<RpcAnswer> {
    const { revision } = this.#ports.dialect;
    const { method } = this.#request;
    if (!isSavedCall(saved) || saved.revision !== revision || saved.method !== method) {
      throw optionError(`The saved call is not one of ${method} on ${revision}.`);
    }
    this.#name = saved.call;
    if (saved.taskId !== undefined) return this.#followTask({ taskId: saved.taskId });
    return this.#run(await this.#nextRound(saved), 2);
  }

  async #run(first: RpcAnswer, firstRound = 1): Promise<RpcAnswer> {
    const { dialect, maxRounds } = this.#ports;
    const { id, method, params } = this.#request;
    let answer = first;
    for (let round = firstRound; ; round += 1) {
      const reading: ReadResult = readAnswer(answer, dialect, this.#takesTasks);
      if (reading.kind === 'complete') return { jsonrpc: '2.0', id, ...reading.outcome };
      if (reading.kind === 'task') return this.#followTask(reading.task);
      const { input } = reading;
      if (dialect.asking?.has(method) === false)
        throw malformed(`input_required to ${method}, which may not ask`);
      if (method === 'tasks/result') {
        // Who follows a task without this transport waits here for its outcome, as in 2025-11-25.
        return this.#followTask({ ...params, status: 'input_required' }, input.inputRequests);
      }
      if (round > maxRounds) {
        const told = `The server wants more input after ${maxRounds} rounds of ${method} (option \`maxRounds\`).`;
        throw new AwaitError('limit', told);
      }
      answer = await this.#nextRound(input);
    }
  }

  /** Puts the asks to the client, and sends the request again; at once without asks. */
  async #nextRound({ inputRequests, requestState }: Input): Promise<RpcAnswer> {
    await this.#note({ ...this.#saved(), ...defined({ requestState, inputRequests }) });
    this.#stop.signal.throwIfAborted();
    const isAsked = inputRequests !== undefined && Object.keys(inputRequests).length > 0;
    const responses = isAsked ? await this.#ask(inputRequests) : undefined;
    const { dialect } = this.#ports;
    const once = async (): Promise<RpcAnswer> => {
      this.#stop.signal.throwIfAborted();
      const request = dialect.retry({ ...this.#request, id: this.#newId() }, { responses, requestState });
      const opened = await this.#open(request);
      return served(await opened.answer, false);
    };
    return this.#repeat(once, isUntaken);
  }

  #ask(requests: InputRequests): Promise<Responses> {
    return new Promise((resolve, reject) => {
      const round = new Round(this.#ports, requests, true, () => {
        const { outcome } = round;
        if (outcome instanceof Refused) reject(outcome);
        else if (outcome !== undefined) resolve(outcome);
      });
      this.#round = round;
      this.#leaveRound = reject;
      round.begin();
    });
  }

  /** Each time under a new id: the server may still be serving the last one. */
  #repeat<T>(
    once: () => Promise<T>,
    mayPass: (thrown: unknown) => boolean,
    signal: AbortSignal = this.#stop.signal,
  ): Promise<T> {
    return retry(once, new Attempts(forRepeats(this.#ports.reconnection), signal), mayPass);
  }

  async #followTask(created: JsonObject, inputRequests?: InputRequests): Promise<RpcAnswer> {
    const { taskId } = created;
    if (typeof taskId !== 'string') throw malformed('a task without a taskId');
    const task = new TaskFollower({
      ...this.#ports,
      taskId,
      signal: this.#stop.signal,
      request: (method) => this.#askOfTask(method, { taskId }),
      respond: (message) => this.#respond(message),
    });
    this.#task = task;
    if (this.#ownsTask) await this.#note({ ...this.#saved(), taskId });
    const outcome = await task.follow(created, inputRequests);
    return { jsonrpc: '2.0', id: this.#request.id, ...outcome };
  }

  /** The answers to a task's asks; a message without a method has no response. */
  async #respond(message: JsonObject & { readonly method?: string }): Promise<void> {
    const { method, params } = message;
    if (method === undefined) {
      const once = () => this.#ports.tell({ jsonrpc: '2.0', id: this.#newId(), ...message });
      return this.#repeat(once, isLost);
    }
    const answer = await this.#askOfTask(method, isObject(params) ? params : undefined);
    if ('error' in answer) throw new Refused(answer.error);
  }

  /**
   * Reading a task, answering its asks and cancelling it have the same effect however often they are sent. But an
   * internal error of `tasks/result` is the outcome of the task's tool.
   */
  #askOfTask(method: string, params: JsonObject | undefined, signal = this.#stop.signal): Promise<RpcAnswer> {
    const once = async (): Promise<RpcAnswer> => {
      const request = { jsonrpc: '2.0' as const, id: this.#newId(), method, ...(params && { params }) };
      const { answer } = await this.#open(request, signal);
      return served(await answer, method !== 'tasks/result');
    };
    return this.#repeat(once, isLost, signal);
  }

  async #open(request: ClientRequest, signal = this.#stop.signal): Promise<Opened> {
    this.#inFlight = request.id;
    try {
      const { answer } = await this.#ports.open(request, signal);
      return { answer: answer.finally(() => this.#landed(request.id)) };
    } catch (thrown) {
      this.#landed(request.id);
      throw thrown;
    }
  }

  #landed(id: RequestId): void {
    if (this.#inFlight === id) this.#inFlight = undefined;
  }

  #saved(): SavedCall {
    const { revision } = this.#ports.dialect;
    return { call: this.#name, revision, method: this.#request.method, params: lasting(this.#request) };
  }

  /** Reports a state; an error of the callback is reported and does not delay the call. */
  async #note(saved: SavedCall | undefined): Promise<void> {
    if (saved !== undefined) this.#noted = true;
    else if (!this.#noted) return;
    try {
      await this.#ports.onState?.(saved, this.#name);
    } catch (thrown) {
      this.#ports.report(asError(thrown));
    }
  }

  /** Without this the client would wait until its own time is up, and not hear why. */
  #fail(error: Error): void {
    if (this.#stop.signal.aborted) return;
    this.#giveUp('The request that asked this has ended');
    if (error instanceof Refused) {
      const { code, message, data } = error;
      this.#cancelTask();
      const told = { code, message, ...defined({ data }) };
      this.#ports.deliver({ jsonrpc: '2.0', id: this.#request.id, error: told });
      return;
    }
    this.#ports.report(error);
    this.#ports.deliver(failureOf(this.#request.id, error));
  }

  #giveUp(reason: string): void {
    this.#round?.giveUp(reason);
    this.#round = undefined;
    this.#task?.giveUp(reason);
  }

  /** Whether this transport follows the task; a caller of `tasks/result` follows its own. */
  get #ownsTask(): boolean {
    return this.#request.method !== 'tasks/result';
  }

  /** Not awaited: the client waits for it no longer. */
  #cancelTask(): void {
    const { taskId } = this.#task ?? {};
    if (taskId === undefined || !this.#ownsTask) return;
    void this.#note(undefined);
    const { closed, report } = this.#ports;
    this.#askOfTask('tasks/cancel', { taskId }, closed).catch(
      (thrown) => closed.aborted || report(asError(thrown)),
    );
  }

  /** Ids of our own are strings, and those of SDK v1 numbers. */
  #newId(): RequestId {
    this.#sent += 1;
    return `${this.#request.id}~${this.#sent}`;
  }
}
