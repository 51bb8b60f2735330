/**
 * A server behind a link, as an instance of the engine sees it: a host with `connect(transport)`, which answers
 * `initialize` from the running server, and passes other messages to its client's servers.
 * 1. A call that may ask has the turn from when it is sent until it is answered, also while it is suspended.
 * 2. Its journal says that it is sent, and whether it may be run again, just before it is sent: an unsent call is
 *    always run, whichever process takes it over. A call of another process has its journal there, so that is asked.
 * 3. When a server ends, its open requests that cannot ask are sent to the next one; an open call is lost, and the
 *    engine decides whether to run it again.
 */
import {
  AwaitError,
  advice,
  CANCEL,
  deferred,
  defined,
  isObject,
  isUnpassed,
  type JsonObject,
  objectOf,
  unpassed,
  WENT_ON,
} from '../base/values.ts';
import { type CallContext, currentContext } from '../call/frame/context.ts';
import type { Response } from '../call/journal/entries.ts';
import { wireError } from '../call/run/wire-error.ts';
import type { HostTransport, Message } from '../host/transport.ts';
import type { Group, PeerTurn } from './group.ts';
import type { PeerLogger } from './link.ts';
import { taskOf } from './modern-tasks.ts';
import { type Holder, type Peer, type PeerAsk, PeerGone, type RequestOwner, SENDING } from './peer.ts';
import { NOT_TAKEN, type Replay, SENT, type SentCall } from './replay-rule.ts';

/** Requests that may ask: one at a time. */
const MAY_ASK: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read', 'tasks/result']);
/** How often a request that cannot ask is sent to another server. */
const ATTEMPTS = 3;

/** Where an instance of the engine, or another process, is reached. */
export type LeaseTransport = Pick<HostTransport, 'onmessage' | 'start' | 'tell' | 'ask' | 'lose'> &
  Partial<Pick<HostTransport, 'isUsed'>>;

interface PeerWork {
  readonly holder: Holder;
  /** Waits no longer: a frame that is dropped settles no steps, and its client's server gets no answers. */
  readonly stop: () => void;
  turn?: PeerTurn;
  /** Its id on the link, once it is sent. */
  sent?: number;
  cancelled?: true;
}

export interface LeaseOptions {
  readonly logger: PeerLogger;
  /** Which calls may be run again after they were sent. */
  readonly replay: Replay;
  /** How long a cancelled call may take to end, in milliseconds. */
  readonly cancelGrace: number;
  /** Whether other callers use the same servers. */
  readonly isShared?: boolean;
  /** Whether the calls are another process's. */
  readonly isGuest?: boolean;
  /** The caller's token that its servers are sent: a request with another one is not theirs. */
  readonly token?: string | undefined;
}

export class PeerLease implements RequestOwner {
  /** A server of 2026-07-28 returns its asks. */
  readonly takesRounds = true;
  readonly #group: Group;
  readonly #options: LeaseOptions;
  readonly #work = new Map<string | number, PeerWork>();
  #transport: LeaseTransport | undefined;
  #over = false;

  constructor(group: Group, options: LeaseOptions) {
    this.#group = group;
    this.#options = options;
  }

  async connect(transport: LeaseTransport): Promise<void> {
    this.#transport = transport;
    transport.onmessage = (message, extra) => this.#received(message, extra);
    await transport.start();
  }

  /** The instance is over: a call that is still in a server holds that up, so the server goes. */
  close(): void {
    if (this.#over) return;
    this.#over = true;
    for (const work of this.#work.values()) {
      this.#group.giveUp(work.holder);
      work.stop();
      if (work.sent !== undefined && work.cancelled === undefined) endIn(work);
    }
    this.#group.leave(this);
  }

  /** Whether it has a call that is not over. */
  get isBusy(): boolean {
    return this.#work.size > 0;
  }

  get isUsed(): boolean {
    return this.#transport?.isUsed?.() ?? true;
  }

  notification(message: JsonObject, requestId?: string | number): void {
    this.#transport?.tell(message as Message, defined({ relatedRequestId: requestId }));
  }

  ask({ method, params, signal, progress }: PeerAsk, requestId?: string | number): Promise<Response> {
    if (this.#transport === undefined) return new Promise(() => {});
    return this.#transport.ask(
      { jsonrpc: '2.0', method, ...(isObject(params) && { params }) },
      { signal, ...defined({ relatedRequestId: requestId, progress }) },
    );
  }

  // --- messages of the instance -----------------------------------------------------------------------

  #received(message: Message, extra: JsonObject = {}): void {
    const { id, method, params = {} } = message;
    if (method === undefined) return;
    const own = this.#options.token;
    // A request that came with another token than the one that the servers here are sent.
    const isOthers = own !== undefined && isObject(extra.authInfo) && extra.authInfo.token !== own;
    if (id === undefined) this.#notified(method, message);
    else if (isOthers) this.#respond(id, OTHER_TOKEN);
    else if (method === 'initialize')
      this.#answer(
        id,
        this.#group.peer().then(({ initialized }) => ({ result: initialized })),
      );
    else if (MAY_ASK.has(method)) void this.#call(id, method, params);
    else this.#answer(id, this.#beside(id, method, params));
  }

  #notified(method: string, message: Message): void {
    if (method === 'notifications/initialized') return;
    if (method === CANCEL) {
      const { params = {} } = message;
      const { requestId, reason } = params;
      const work = this.#work.get(requestId as string | number);
      if (work !== undefined) this.#cancel(work, reason);
      else if (taskOf(params) !== undefined) this.#group.notify(message);
      return;
    }
    this.#group.notify(message);
  }

  #answer(id: string | number, coming: Promise<Response>): void {
    coming
      .catch((error: unknown): Response => this.#failed(error))
      .then((response) => this.#respond(id, response));
  }

  /** Sends a request that cannot ask. */
  async #beside(id: string | number, method: string, params: JsonObject): Promise<Response> {
    for (let attempt = 1; ; attempt += 1) {
      const peer = await this.#group.peer();
      try {
        const response = await peer.request(method, params, { owner: this, requestId: id });
        if ('result' in response) this.#group.remember(method, params);
        return response;
      } catch (error) {
        if (!(error instanceof PeerGone) || attempt === ATTEMPTS) throw error;
      }
    }
  }

  /** @param known what its journal says, where it was sent to a server that certainly has not taken it */
  async #call(
    id: string | number,
    method: string,
    params: JsonObject,
    known?: SentCall,
    attempt = 1,
  ): Promise<void> {
    const context = currentContext();
    const holder: Holder = { owner: this, requestId: id, repeatable: false };
    const { promise: stopped, resolve } = deferred<void>();
    const over = (): void => {
      if (this.#work.get(id) === work) this.#work.delete(id);
      work.turn?.done();
    };
    const stop = (): void => {
      resolve();
      // Nothing else that it waits for may ever come.
      if (work.sent === undefined) over();
    };
    const work: PeerWork = { holder, stop };
    this.#work.set(id, work);
    let isAgain = false;
    const untaken = async (): Promise<void> => {
      if (known === undefined || context?.once === undefined || this.#over || work.cancelled) return;
      await Promise.race([stopped, anew(context.once, NOT_TAKEN)]);
    };
    try {
      const free = this.#group.concurrent;
      const turn = free === undefined ? await this.#group.turn(holder) : { peer: free, done: () => {} };
      work.turn = turn;
      if (this.#over || work.cancelled) return;
      const { peer } = turn;
      await peer.askStrays((ask) => this.ask(ask, id));
      const sending = async (repeatable: boolean): Promise<boolean> => {
        known ??= (await Promise.race([stopped, this.#note(id, { repeatable }, context?.once)])) || undefined;
        // Else the call continues elsewhere.
        if (known === undefined || this.#over || work.cancelled) return false;
        holder.repeatable = known.repeatable;
        return true;
      };
      if (!peer.elsewhere && !(await sending(await this.#mayRepeat(peer, method, params)))) return;
      const from = { owner: this, requestId: id, sending };
      const response = await peer.request(method, params, from, (onLink) => {
        work.sent = onLink;
      });
      if (isUnpassed(response)) await untaken();
      this.#respond(id, response);
    } catch (error) {
      const { how } = error instanceof PeerGone ? error : {};
      const isUntaken = how !== undefined && (how.untaken === true || work.sent === undefined);
      isAgain = isUntaken && attempt < ATTEMPTS && !this.#over && !work.cancelled;
      if (isAgain) return;
      if (isUntaken) await untaken();
      if (how !== undefined && !this.#over)
        this.#transport?.lose(
          id,
          new AwaitError(
            'host-gone',
            `the server that ran this call has ended: ${(error as PeerGone).message}`,
          ),
          how.planned === true,
        );
      else if (!work.cancelled) this.#respond(id, this.#failed(error));
    } finally {
      over();
      if (isAgain) void this.#call(id, method, params, known, attempt + 1);
    }
  }

  /** Has the call's journal say that it is sent. @returns what the journal says, undefined if it may not be sent */
  async #note(id: string | number, sent: SentCall, once: CallContext['once']): Promise<SentCall | undefined> {
    if (once !== undefined) return anew(once, sent);
    if (!this.#options.isGuest) return sent;
    const params = { requestId: id, ...sent };
    const answer = await this.ask({ method: SENDING, params, signal: new AbortController().signal });
    return 'result' in answer && answer.result.may === true ? sent : undefined;
  }

  async #mayRepeat(peer: Peer, method: string, params: JsonObject): Promise<boolean> {
    const { replay } = this.#options;
    if (replay !== 'safe' || method === 'prompts/get' || method === 'resources/read')
      return replay !== 'never';
    // To wait for a task twice makes no second one.
    if (taskOf(params) !== undefined) return true;
    return method === 'tools/call' && (await peer.mayRepeat(String(params.name)));
  }

  /**
   * Cancels a request. The SDKs do not respond to a cancelled request, so its end cannot be seen: it keeps the turn for
   * a while, so that its asks reach no other caller's client.
   */
  #cancel(work: PeerWork, reason: unknown): void {
    if (work.cancelled) return;
    work.cancelled = true;
    work.stop();
    const { turn, sent, holder } = work;
    if (turn === undefined) this.#group.giveUp(holder);
    if (turn === undefined || sent === undefined) return;
    const { peer } = turn;
    // Its tool still waits for an answer, and its `catch` would run after another process has done the call.
    if (reason === WENT_ON && holder.repeatable && !peer.isConcurrent) {
      peer.kill(true);
      return;
    }
    peer.cancel(sent, typeof reason === 'string' ? reason : undefined);
    if (peer.isConcurrent) {
      peer.forget(sent);
      this.#work.delete(holder.requestId);
      return;
    }
    setTimeout(() => {
      if (peer.holder !== holder) return;
      if (this.#options.isShared) peer.kill(true);
      peer.forget(sent);
      this.#work.delete(holder.requestId);
      turn.done();
    }, this.#options.cancelGrace).unref();
  }

  #respond(id: string | number, response: Response): void {
    // Another process, where the caller is, cannot see the mark.
    this.#transport?.tell({
      jsonrpc: '2.0',
      id,
      ...response,
      ...(isUnpassed(response) && { unpassed: true }),
    });
  }

  #failed(thrown: unknown): Response {
    const failure = AwaitError.from(thrown);
    const { code, message } = failure;
    this.#options.logger.warn('a request could not be passed to its server', { error: message });
    // How long the queue is may be known, how a server ended may not.
    const error = code === 'limit' ? { code: -32000, message, data: advice('limit') } : wireError(failure);
    unpassed.add(objectOf(error.data));
    return { error };
  }
}

/** For a request where `principal` names one caller by two tokens. */
const OTHER_TOKEN: Response = {
  error: {
    code: -32000,
    message: 'This session began with another access token: initialize a new one with the present token',
  },
};

/** Ends a call that holds its server up: with its server, if that runs one call at a time. */
function endIn({ turn, sent }: PeerWork): void {
  if (turn === undefined || sent === undefined) return;
  const { peer } = turn;
  if (peer.isConcurrent) {
    peer.cancel(sent, WENT_ON);
    peer.forget(sent);
  } else peer.kill(true);
}

/**
 * Adds a fact to the call's journal, after those of earlier attempts.
 * @returns it, or an earlier one that says that the call may be repeated
 */
async function anew(
  once: NonNullable<CallContext['once']>,
  fact: SentCall | typeof NOT_TAKEN,
): Promise<SentCall | undefined> {
  for (;;) {
    let isNew = false;
    const found = await once(SENT, async () => {
      isNew = true;
      return fact;
    });
    if (isNew || objectOf(found).repeatable === true) return found as SentCall;
  }
}
