/**
 * The life of a call: started by a first leg, put down when it asks, picked up by whoever gets the next leg.
 *
 * It decides who may enter a turn (invariant 10: one winner, by the journal) and from what a frame goes on.
 * The runs themselves, and what is written of them, are in `runs.ts`; what happens inside of a turn is the
 * frame's business; what it looks like on a wire, compat's.
 */
import { randomUUID } from 'node:crypto';
import { AwaitError } from '../error.ts';
import type { ErrorAnswers } from './answer.ts';
import { Frame } from './frame.ts';
import { Handoff, type Offer } from './handoff.ts';
import { type CallRecord, type Client, FORMAT, type Response } from './journal.ts';
import { digest, isObject, type JsonObject } from './json.ts';
import { isAppended, volatileJournal } from './open-journal.ts';
import type { Binding, Instance, Leg, Outcome } from './ports.ts';
import { Resumption, replayRefused } from './resumption.ts';
import { type Active, type EngineParts, keyOf, type Run, Runs } from './runs.ts';
import { follow } from './take-up.ts';
import { wireError } from './wire-error.ts';

export type { EngineParts } from './runs.ts';

export interface NewCall {
  readonly method: string;
  readonly params: JsonObject;
  readonly requestId: string | number;
  readonly client: Client;
  readonly binding: Binding;
  /** `inputResponses` of a request without `requestState`: used where an ask's explicit key matches. */
  readonly responses?: unknown;
  /** Whether it goes on without its request: others may follow it, and take it up (`takeUp`). */
  readonly resumable?: boolean;
}

/** A call that is being run for a client that may still talk to it. */
export interface Started {
  /** The call's id, under which other processes find it where it is resumable. */
  readonly callId: string;
  readonly outcome: Promise<Outcome>;
  /** Live revisions: the client's response to an ask; false when no ask of this key is open. */
  answer(key: string, response: Response): Promise<boolean>;
  /** Ends the call, also while it is suspended. */
  cancel(reason?: string): void;
}

const GONE: Outcome = { kind: 'gone' };

export class Engine {
  readonly #parts: EngineParts;
  /** This process, in the journals' claims. */
  readonly #id = randomUUID();
  readonly #runs: Runs;
  readonly #resumption: Resumption;
  readonly #handoff: Handoff | undefined;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    const { handoff, clock, limits, log } = parts;
    this.#handoff =
      handoff &&
      new Handoff(handoff, {
        clock,
        wait: limits.handoffWait,
        log,
        accept: (offer, leg, onAccepted) => this.#accept(offer, leg, onAccepted),
        woken: (callId) => this.#runs.wake(callId),
      });
    this.#runs = new Runs(parts, this.#handoff);
    this.#resumption = new Resumption(parts, this.#runs, this.#handoff, this.#id);
  }

  /** Frames parked in this process. */
  get parked(): number {
    return this.#runs.parked.size;
  }

  /** Runs a first leg, in `instance` or in one of its own. */
  start(request: NewCall, leg: Leg, instance?: Instance): Started {
    const call = this.#record(request);
    const { binding, responses, resumable = false } = request;
    this.#parts.count('calls');
    return this.#run(call, leg, async () => {
      if (responses !== undefined && !isObject(responses)) {
        throw new AwaitError('bad-answer', 'inputResponses must be an object of results by key');
      }
      const { store } = this.#parts;
      const journal = store?.open(call, -1) ?? volatileJournal(-1);
      // Whoever takes it up must find it, whatever happens from here on.
      if (resumable && store !== undefined) {
        const by = this.#handoff?.listening ? { by: this.#handoff.name } : {};
        await journal.append({ type: 'called', format: FORMAT, call, ...by });
      }
      const home = instance ?? (await this.#parts.openInstance(call, leg));
      const frame = new Frame(call, journal, this.#parts.frame);
      return { run: { call, binding, frame, instance: home, journal, isResumable: resumable }, responses };
    });
  }

  /**
   * Goes on with a resumable call whose owner was not heard of for a lease; until then, and when it ends
   * before that, the outcome is that owner's. Asks that are open go out again, under their keys.
   *
   * @param take told when the call is this process’s now, before anything of it is said: opens an instance
   */
  takeUp(
    callId: string,
    binding: Binding,
    leg: Leg,
    take?: (call: CallRecord) => Promise<Instance | undefined>,
  ): Started {
    return this.#run({ id: callId }, leg, async (stopped) => {
      const { store, clock, limits, frame: options, replay, count } = this.#parts;
      if (store === undefined) throw new AwaitError('bad-token', 'without a store no call can be taken up');
      for (;;) {
        const { principal } = binding;
        const found = await follow({ store, clock, callId, principal, lease: limits.lease, stopped });
        if (found.kind === 'stopped') return { outcome: GONE };
        if (found.kind === 'ended') return { outcome: { kind: 'responded', response: found.response } };
        const { call, at, completions } = found;
        const journal = store.open(call, at);
        const mayReplay = replay(call) === 'allow';
        const error = wireError(replayRefused({ completions }));
        const claim = { type: 'claimed', answers: [], sent: '', by: this.#id } as const;
        // Somebody else takes it up, or its owner was only slow: look again.
        if (!(await isAppended(journal, mayReplay ? claim : { type: 'ended', response: { error } })))
          continue;
        if (!mayReplay) return { outcome: { kind: 'responded', response: { error } } };
        count('takenOver');
        const instance = (await take?.(call)) ?? (await this.#parts.openInstance(call, leg));
        const frame = new Frame(call, journal, options, { ...found, turn: 0, fresh: 0 });
        return { run: { call, binding, frame, instance, journal, isResumable: true } };
      }
    });
  }

  /**
   * Takes in an answer to an ask of a resumable call, whichever process runs it: it is in the store when this
   * resolves. The first one counts.
   *
   * @throws AwaitError `bad-token` when this caller has no such call
   */
  async deliver(
    callId: string,
    principal: string | undefined,
    key: string,
    response: Response,
  ): Promise<void> {
    const first = await this.#parts.store?.read(callId, 0);
    if (first?.type !== 'called' || first.call.principal !== principal) {
      throw new AwaitError('bad-token', `call ${callId} has no record of this caller's to answer`);
    }
    await this.#parts.store?.deliver(callId, key, response, first.call.expires);
    this.#runs.wake(callId);
    if (first.by !== undefined) await this.#handoff?.wake(first.by, callId);
  }

  /** Runs what `prepare` makes ready, or tells the outcome that it found; either can be cancelled at any time. */
  #run(
    call: { readonly id: string },
    leg: Leg,
    prepare: (stopped: () => boolean) => Promise<{ run: Run; responses?: unknown } | { outcome: Outcome }>,
  ): Started {
    let run: Run | undefined;
    let cancelled = false;
    let tell: (outcome: Outcome) => void = () => {};
    const outcome = new Promise<Outcome>((resolve) => {
      tell = resolve;
    });
    const cancel = (reason?: string): void => {
      cancelled = true;
      if (run !== undefined) this.#runs.cancel(run, reason);
      tell(GONE);
    };
    const begin = async (): Promise<Outcome> => {
      const ready = await prepare(() => cancelled);
      if ('outcome' in ready) return ready.outcome;
      run = ready.run;
      if (!cancelled) return this.#runs.turn(run, leg, [], true, { responses: ready.responses });
      this.#runs.cancel(run);
      return GONE;
    };
    const { signal } = leg;
    const onAbort = (): void => cancel('the client went away');
    signal?.addEventListener('abort', onAbort, { once: true });
    void begin()
      .catch((error: unknown) => this.#runs.failed(call.id, AwaitError.from(error)))
      .then((ended) => {
        // A signal that fires later is about a request that has had its reply.
        signal?.removeEventListener('abort', onAbort);
        tell(ended);
      });
    if (signal?.aborted) onAbort();
    return {
      callId: call.id,
      outcome,
      cancel,
      answer: async (key, response) => run !== undefined && this.#runs.answer(run, key, response),
    };
  }

  /**
   * Goes on with a suspended call.
   *
   * @param responses the client's `inputResponses` as it came
   * @param errors asks that the client answered by a JSON-RPC error, by key
   * @throws nothing: what is wrong is an outcome, in a frozen sentence
   */
  async resume(
    token: string,
    binding: Binding,
    responses: unknown,
    leg: Leg,
    errors?: ErrorAnswers,
  ): Promise<Outcome> {
    try {
      this.#parts.count('resumes');
      if (this.#runs.closed) throw new AwaitError('closed', 'this handler was closed');
      const state = await this.#parts.tokens.open(token, binding);
      return await this.#join(
        { state, token, binding, responses, ...(errors !== undefined && { errors }) },
        leg,
      );
    } catch (error) {
      return this.#runs.failed(undefined, AwaitError.from(error));
    }
  }

  /**
   * Takes nothing new on; turns that are being run come to their end, or are put down after `limits.drain` for
   * others to take up. What is parked is dropped: its calls go on elsewhere, from the journal.
   */
  async close(): Promise<void> {
    await this.#runs.close(this.#parts.limits.drain);
    await this.#handoff?.close();
  }

  // --- who may enter a turn --------------------------------------------------------------------------

  /** The same token with the same answers shares one turn; with others it is refused. */
  async #join(offer: Offer, leg: Leg, onAccepted?: () => void): Promise<Outcome> {
    const { state } = offer;
    const key = keyOf(state);
    const { responses = null, errors } = offer;
    const sent = digest(errors === undefined ? responses : [responses, errors]);
    const known = this.#runs.known(key, sent);
    if (known !== undefined && known.sent !== sent) {
      throw new AwaitError('bad-token', `call ${state.callId}: this turn was taken with other answers`);
    }
    if (known !== undefined) {
      onAccepted?.();
      return this.#wait(known, leg);
    }
    let leave: (() => void) | undefined;
    let left = false;
    const onRun = (fn: () => void): void => {
      onAccepted?.();
      leave = fn;
      // The client may have gone while the turn was being prepared.
      if (left) queueMicrotask(() => active.waiters === 0 && fn());
    };
    const active: Active = {
      sent,
      waiters: 0,
      leave: () => {
        left = true;
        leave?.();
      },
      outcome: Promise.resolve()
        .then(() =>
          this.#resumption.resume({ ...offer, sent, leg, onRun, isOffered: onAccepted !== undefined }),
        )
        .catch((error: unknown) => this.#runs.failed(state.callId, AwaitError.from(error)))
        .finally(() => this.#runs.over(key, sent)),
    };
    this.#runs.begin(key, active);
    return this.#wait(active, leg);
  }

  /** Another process offers a POST whose call's frame may be here. */
  #accept(offer: Offer, leg: Leg, onAccepted: () => void): Promise<Outcome> | undefined {
    if (this.#runs.closed || !this.#runs.has(keyOf(offer.state))) return undefined;
    return this.#join(offer, leg, onAccepted).catch((error: unknown) =>
      this.#runs.failed(offer.state.callId, AwaitError.from(error)),
    );
  }

  /** A client that goes away ends the turn when nobody else waits for it; the token stays good. */
  #wait(active: Active, leg: Leg): Promise<Outcome> {
    const { signal } = leg;
    active.waiters += 1;
    if (signal === undefined) return active.outcome;
    return new Promise((resolve) => {
      const onAbort = (): void => {
        active.waiters -= 1;
        if (active.waiters === 0) active.leave?.();
        resolve(GONE);
      };
      if (signal.aborted) {
        onAbort();
        return;
      }
      signal.addEventListener('abort', onAbort, { once: true });
      void active.outcome.then((outcome) => {
        signal.removeEventListener('abort', onAbort);
        resolve(outcome);
      });
    });
  }

  #record(request: NewCall): CallRecord {
    const { method, params, requestId, client, binding } = request;
    const created = this.#parts.clock.now();
    const expires = created + this.#parts.ttl;
    return {
      // The id tells when the call expires, so that a sweeper need not read what it deletes.
      id: `${Math.ceil(expires).toString(36)}.${randomUUID()}`,
      method,
      params,
      requestId,
      revision: binding.revision,
      client,
      ...(binding.principal !== undefined && { principal: binding.principal }),
      created,
      expires,
    };
  }
}
