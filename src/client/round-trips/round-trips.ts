/**
 * A request of the client, over as many round trips as it takes (SEP-2322, its first draft, 2026-07-28). Owns the
 * call's state: the next message, the open asks, and the task that it may have become. Invariants:
 * 1. A retry has a new id, the same method and params, and only the last round's answers and `requestState`: unchanged,
 *    and absent if it was absent.
 * 2. Calls share no state: all of it is here, and an ask has an id of its own toward the client.
 * 3. The client gets one response, under the id of its request, or none once it has cancelled it.
 * 4. After a cancellation nothing is sent but that cancellation.
 */

import { AwaitError } from '../../base/error.ts';
import { asError, failureOf, serverErrorIn } from '../failure.ts';
import { type Answer, isObject, type JsonObject, type RequestId, type RpcRequest } from '../message.ts';
import { type Reconnection, untilTaken } from '../reconnection.ts';
import type { Dialect, Retry } from './dialect.ts';
import { type Input, malformed, type Reading, readAnswer } from './reading.ts';
import { served, Unserved, untilServed } from './repeat.ts';
import { Refused, type Responses, Round, type RoundPorts } from './round.ts';
import { type InputRequests, isSavedCall, lasting, type SavedCall } from './saved-call.ts';
import { TaskFollower } from './task.ts';

/** Called with each state from which a call could be resumed; with undefined once it has its response. */
export type OnState = (saved: SavedCall | undefined, call: string) => void | Promise<void>;

export interface RoundTripPorts extends RoundPorts {
  readonly dialect: Dialect;
  /** How often one request may be answered with `input_required`. */
  readonly maxRounds: number;
  readonly reconnection: Reconnection;
  readonly onState: OnState | undefined;
  /** Aborted once nothing can be sent any more. */
  readonly closed: AbortSignal;
  /** Sends a request. Resolves once the server has taken it; throws an EndpointError where it does not. */
  open(request: RpcRequest, signal: AbortSignal): Promise<Opened>;
  /** Sends a message whose response is a status alone. */
  tell(message: JsonObject): Promise<void>;
  /** The client no longer waits for a request in flight, whose signal is aborted next. */
  abandon(id: RequestId, reason: unknown): void;
}

export interface Opened {
  /** Rejects where the server ends its reply without one. */
  readonly answer: Promise<Answer>;
}

export class RoundTripCall {
  readonly #ports: RoundTripPorts;
  readonly #request: RpcRequest;
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
  constructor(ports: RoundTripPorts, request: RpcRequest, takesTasks: boolean) {
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

  async #follow(outcome: Promise<Answer>): Promise<void> {
    try {
      const answer = await outcome;
      if (this.#stop.signal.aborted) return;
      this.#ports.deliver({ ...answer, id: this.#request.id });
      await this.#note(undefined);
    } catch (thrown) {
      this.#fail(asError(thrown));
    }
  }

  async #goOn(saved: unknown): Promise<Answer> {
    const { revision } = this.#ports.dialect;
    const { method } = this.#request;
    if (!isSavedCall(saved) || saved.revision !== revision || saved.method !== method) {
      throw new AwaitError('bad-option', `The saved call is not one of ${method} on ${revision}.`);
    }
    this.#name = saved.call;
    if (saved.taskId !== undefined) return this.#followTask({ taskId: saved.taskId });
    return this.#run(await this.#nextRound(saved), 2);
  }

  async #run(first: Answer, firstRound = 1): Promise<Answer> {
    const { dialect, maxRounds } = this.#ports;
    const { id, method, params } = this.#request;
    let answer = first;
    for (let round = firstRound; ; round += 1) {
      const reading: Reading = readAnswer(answer, dialect, this.#takesTasks);
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
  async #nextRound({ inputRequests, requestState }: Input): Promise<Answer> {
    const state = {
      ...(requestState !== undefined && { requestState }),
      ...(inputRequests !== undefined && { inputRequests }),
    };
    await this.#note({ ...this.#saved(), ...state });
    this.#stop.signal.throwIfAborted();
    const isAsked = inputRequests !== undefined && Object.keys(inputRequests).length > 0;
    const responses = isAsked ? await this.#ask(inputRequests) : undefined;
    return this.#send(this.#retry({ responses, requestState }));
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

  #retry(retry: Retry): RpcRequest {
    return this.#ports.dialect.retry({ ...this.#request, id: this.#newId() }, retry);
  }

  async #followTask(created: JsonObject, inputRequests?: InputRequests): Promise<Answer> {
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
      const { reconnection, tell } = this.#ports;
      const once = () => tell({ jsonrpc: '2.0', id: this.#newId(), ...message });
      return untilServed(once, reconnection, this.#stop.signal);
    }
    const answer = await this.#askOfTask(method, isObject(params) ? params : undefined);
    if ('error' in answer) throw new Refused(answer.error);
  }

  /** Under a new id each time: the server may still be serving the last one. */
  #askOfTask(method: string, params: JsonObject | undefined): Promise<Answer> {
    const once = async (): Promise<Answer> => {
      const request = { jsonrpc: '2.0' as const, id: this.#newId(), method, ...(params && { params }) };
      const { answer } = await this.#open(request);
      return served(method, await answer);
    };
    return untilServed(once, this.#ports.reconnection, this.#stop.signal);
  }

  async #send(request: RpcRequest): Promise<Answer> {
    const { reconnection } = this.#ports;
    const { signal } = this.#stop;
    const open = async (): Promise<Opened> => {
      signal.throwIfAborted();
      return this.#open(request);
    };
    const { answer } = await untilTaken(open, reconnection, signal);
    return answer;
  }

  async #open(request: RpcRequest): Promise<Opened> {
    this.#inFlight = request.id;
    try {
      const { answer } = await this.#ports.open(request, this.#stop.signal);
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
      const told = { code, message, ...(data !== undefined && { data }) };
      this.#ports.deliver({ jsonrpc: '2.0', id: this.#request.id, error: told });
      return;
    }
    this.#ports.report(error);
    const { id } = this.#request;
    const unserved =
      error instanceof Unserved ? { jsonrpc: '2.0' as const, id, error: error.error } : undefined;
    this.#ports.deliver(unserved ?? failureOf(id, error));
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
    const { open, closed, report, reconnection } = this.#ports;
    const method = 'tasks/cancel';
    const once = async (): Promise<Answer> => {
      const request = { jsonrpc: '2.0' as const, id: this.#newId(), method, params: { taskId } };
      const { answer } = await open(request, closed);
      return served(method, await answer);
    };
    void untilServed(once, reconnection, closed).catch((thrown) => closed.aborted || report(asError(thrown)));
  }

  /** Ids of our own are strings, and those of SDK v1 numbers. */
  #newId(): RequestId {
    this.#sent += 1;
    return `${this.#request.id}~${this.#sent}`;
  }
}
