/**
 * Continues a call in the process that keeps its frame (live first, handoff second, replay last).
 * The token names that process. The process that gets the client's POST offers it there, and waits a short time for
 * acceptance, which means that the owner has claimed the turn in the journal, before its tool continues. From then on
 * the journal decides; messages only carry the turn's notifications and outcome sooner. So they may be lost, late,
 * repeated or out of order, and an offer that is not accepted costs only its wait.
 */
import {
  badToken,
  type Clock,
  deferred,
  defined,
  isObject,
  type JsonObject,
  keepNewest,
  objectOf,
} from '../../base/values.ts';
import type { ErrorAnswers } from '../ask/answer.ts';
import type { Response } from '../journal/entries.ts';
import type { Binding } from './binding.ts';
import type { Outcome } from './outcome.ts';
import { type Relay, RelayListener } from './relay.ts';
import type { RequestContext } from './request-context.ts';
import type { TokenState } from './state.ts';

/** Most offers that are remembered, to notice repetitions. */
const OFFERS_KEPT = 1_000;
/** How often refused messages are logged, in milliseconds. */
const REFUSALS_EVERY = 60_000;

export interface HandoffParts {
  readonly relay: Relay;
  /** Seals a message for the relay, which strangers may read and write. @param to the name that it is sent to */
  readonly seal: (message: JsonObject, to: string) => string;
  /** @param at the name that it was received under @throws the reason why it is invalid */
  readonly open: (text: string, at: string) => Promise<JsonObject>;
}

/** A client's POST, as one process offers it to another. */
export interface Offer {
  readonly state: TokenState;
  readonly token: string;
  readonly binding: Binding;
  readonly responses: unknown;
  readonly errors?: ErrorAnswers;
  /** Of a request that joins a turn by what its claim says: the digest in it. Else that of these answers. */
  readonly sent?: string;
}

/** The progress of an accepted offer. */
export interface Accepted {
  /** Never settles when the outcome's message is lost. */
  readonly outcome: Promise<Outcome>;
  /** The client went away. */
  leave(): void;
  /** Stops listening for the outcome. */
  forget(): void;
}

/** Continues an offered call; undefined if its frame is not here. */
type Accept = (offer: Offer, context: RequestContext, onAccepted: () => void) => Promise<Outcome> | undefined;

interface OpenOffer {
  readonly context: RequestContext;
  /** Notifications are numbered from 1; those that came too early wait for the ones before them. */
  heard: number;
  readonly early: Map<number, JsonObject>;
  accept(accepted: boolean): void;
  readonly settle: (outcome: Outcome) => void;
}

/** What the owner is told of the client's request, if it is so. */
const FLAGS: ReadonlySet<string> = new Set([
  'takesTasks',
  'sheds',
  'hasPerson',
  'refuses',
  'isLogged',
] satisfies (keyof RequestContext)[]);

function flagsOf(sent: object): JsonObject {
  return Object.fromEntries(
    Object.entries(sent).filter(([name, value]) => FLAGS.has(name) && value === true),
  );
}

interface HandoffOptions {
  readonly clock: Clock;
  /** How long an offer may wait to be accepted, in milliseconds. */
  readonly wait: number;
  readonly accept: Accept;
  /** Another process took in an answer for a call that runs here. */
  readonly woken: (callId: string) => void;
  readonly log: (level: 'debug' | 'warn', message: string, detail: JsonObject) => void;
}

export class Handoff {
  /** The name this process is reached by. */
  readonly name = crypto.randomUUID();
  readonly #parts: HandoffParts;
  readonly #options: HandoffOptions;
  readonly #waiting = new Map<string, OpenOffer>();
  /** Offers accepted here, by id, each with the function that reports its client's disconnect. */
  readonly #taken = new Map<string, () => void>();
  /** Messages are opened one after the other, so that they keep their order. */
  #heard: Promise<void> = Promise.resolve();
  /** Messages that were refused since that was logged last. */
  #refusals = 0;
  #refusedAt = -Infinity;
  readonly #listening: RelayListener;

  constructor(parts: HandoffParts, options: HandoffOptions) {
    this.#parts = parts;
    this.#options = options;
    this.#listening = new RelayListener(
      parts.relay,
      this.name,
      (text) => {
        this.#heard = this.#heard.then(() => this.#hear(text));
      },
      (...said) => options.log('warn', ...said),
    );
  }

  /** Whether other processes can reach this one. */
  get listening(): boolean {
    return this.#listening.isOn;
  }

  close(): Promise<void> {
    return this.#listening.close();
  }

  /** @returns false where its process has not the frame; `late` where it does not say, or cannot be reached */
  offer(owner: string, offer: Offer, context: RequestContext): Promise<Accepted | false | 'late'> {
    const id = crypto.randomUUID();
    const { clock, wait } = this.#options;
    return new Promise((resolve) => {
      const { promise: outcome, resolve: settle } = deferred<Outcome>();
      const forget = (): void => void this.#waiting.delete(id);
      const leave = (): void => {
        forget();
        void this.#tell(owner, { type: 'gone', id });
      };
      const decide = (accepted: boolean | 'late'): void => {
        timer.cancel();
        if (accepted !== true) forget();
        resolve(accepted === true ? { outcome, leave, forget } : accepted);
      };
      const timer = clock.after(wait, () => decide('late'));
      this.#waiting.set(id, { context, heard: 0, early: new Map(), accept: decide, settle });
      const { capabilities, progressToken, authInfo, taskRefusal } = context;
      const sent = this.#tell(owner, {
        type: 'offer',
        id,
        from: this.name,
        // The owner has the checkpoint.
        state: { callId: offer.state.callId, at: offer.state.at, ...defined({ mark: offer.state.mark }) },
        token: offer.token,
        binding: offer.binding as unknown as JsonObject,
        ...defined({ responses: offer.responses, errors: offer.errors, sent: offer.sent }),
        context: {
          capabilities,
          ...defined({ progressToken, authInfo, taskRefusal }),
          ...flagsOf(context),
        },
      });
      void sent.then((heard) => heard || decide('late'));
    });
  }

  /** Tells the process that runs a call that an answer arrived. */
  wake(name: string, callId: string): void {
    void this.#tell(name, { type: 'woken', id: callId });
  }

  /** @returns false if no process received it */
  async #tell(name: string, message: JsonObject): Promise<boolean> {
    try {
      return await this.#parts.relay.send(name, this.#parts.seal(message, name));
    } catch (error) {
      this.#options.log('warn', 'the relay failed to send', { error });
      return false;
    }
  }

  async #hear(text: string): Promise<void> {
    try {
      const message = await this.#parts.open(text, this.name);
      const { type, id } = message;
      if (typeof id !== 'string') throw badToken('a message without an id');
      if (type === 'offer') this.#onOffer(id, message);
      else if (type === 'gone') this.#taken.get(id)?.();
      else if (type === 'woken') this.#options.woken(id);
      else this.#onReply(id, message);
    } catch (error) {
      this.#refused(error);
    }
  }

  /** Logs the first one, and then how many there were, once a minute: anybody on the relay can send any number. */
  #refused(error: unknown): void {
    this.#refusals += 1;
    const now = this.#options.clock.elapsed();
    if (now - this.#refusedAt < REFUSALS_EVERY) return;
    this.#refusedAt = now;
    const count = this.#refusals;
    this.#refusals = 0;
    this.#options.log('warn', 'a message of the relay is refused', { error, count });
  }

  // --- where the frame is ----------------------------------------------------------------------------

  #onOffer(id: string, message: JsonObject): void {
    const { from, state, token, binding, responses, errors, context: sent } = message;
    if (this.#taken.has(id) || typeof from !== 'string' || typeof token !== 'string') return;
    if (!isObject(state) || !isObject(binding) || !isObject(sent)) return;
    if (typeof state.callId !== 'string' || typeof state.at !== 'number') return;
    const gone = new AbortController();
    this.#taken.set(id, () => gone.abort());
    keepNewest(this.#taken, OFFERS_KEPT);
    let notified = 0;
    const context: RequestContext = {
      live: false,
      capabilities: objectOf(sent.capabilities),
      ...(['string', 'number'].includes(typeof sent.progressToken) && {
        progressToken: sent.progressToken as string | number,
      }),
      ...(isObject(sent.authInfo) && { authInfo: revived(sent.authInfo) }),
      ...(isObject(sent.taskRefusal) && { taskRefusal: sent.taskRefusal as Response }),
      ...flagsOf(sent),
      signal: gone.signal,
      notify: (notification) => {
        notified += 1;
        void this.#tell(from, { type: 'notified', id, nth: notified, notification });
      },
    };
    let accepted = false;
    const onAccepted = (): void => {
      if (!accepted) void this.#tell(from, { type: 'accepted', id });
      accepted = true;
    };
    const offer = {
      state: state as unknown as TokenState,
      token,
      binding: binding as unknown as Binding,
      responses,
      ...(isObject(errors) && { errors: errors as ErrorAnswers }),
      ...(typeof message.sent === 'string' && { sent: message.sent }),
    };
    const outcome = this.#options.accept(offer, context, onAccepted);
    if (outcome === undefined) void this.#tell(from, { type: 'declined', id });
    else
      void outcome.then((ended) => {
        if (ended.kind !== 'gone') void this.#tell(from, { type: 'ended', id, outcome: ended });
      });
  }

  // --- where the client is ---------------------------------------------------------------------------

  #onReply(id: string, message: JsonObject): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    switch (message.type) {
      case 'accepted':
        waiting.accept(true);
        break;
      case 'declined':
        waiting.accept(false);
        break;
      case 'notified': {
        const { nth, notification } = message;
        if (typeof nth !== 'number' || !isObject(notification) || nth <= waiting.heard) return;
        waiting.early.set(nth, notification);
        this.#notify(waiting);
        break;
      }
      case 'ended':
        // Earlier notifications that are still on their way would come after the result, so those at hand go out now.
        for (const nth of [...waiting.early.keys()].sort((one, other) => one - other)) {
          waiting.context.notify(waiting.early.get(nth) ?? {});
        }
        this.#waiting.delete(id);
        waiting.accept(true);
        waiting.settle(message.outcome as Outcome);
        break;
      default:
        break;
    }
  }

  #notify(waiting: OpenOffer): void {
    for (;;) {
      const next = waiting.early.get(waiting.heard + 1);
      if (next === undefined) return;
      waiting.heard += 1;
      waiting.early.delete(waiting.heard);
      waiting.context.notify(next);
    }
  }
}

/** The SDK's `AuthInfo` has a URL in it, which JSON has not. */
function revived(authInfo: JsonObject): JsonObject {
  const { resource } = authInfo;
  return typeof resource === 'string' && URL.canParse(resource)
    ? { ...authInfo, resource: new URL(resource) }
    : authInfo;
}
