/** A stream of a session as the edge writes it: JSON-RPC messages as events, in the store before they are sent. */

import { AwaitError, type JsonObject } from '../../src/base/values.ts';
import type { Begun, NewCall } from '../../src/call/engine.ts';
import { messageText } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import type { Appender } from '../../src/stream/appender.ts';
import type { StreamEvent } from '../../src/stream/log.ts';

/** When a client whose stream was closed should reconnect, in milliseconds. */
export const RETRY = 1_000;

/** The stream for a call's notifications and asks. */
export interface CallStream {
  /** Where it is read from the call's log; absent where it has no calls. */
  readonly log?: {
    readonly how: Pick<NewCall, 'onDurable' | 'callId' | 'session'>;
    /** The call begins. */
    add(started: Begun): void;
    /** Sends what is not in the log. */
    readonly direct: (message: JsonObject) => void;
  };
  send(message: JsonObject): unknown;
  /** Settles once its response is on its way, or never will be. */
  readonly sent?: Promise<unknown>;
}

/** The stream of one call. */
export type OneCallStream = Required<Omit<CallStream, 'sent'>>;

export class SessionStream implements CallStream {
  readonly id: string;
  readonly #appender: Appender;
  readonly #services: Services;
  /** Whether it was said that too much waits for the store. */
  #isFull = false;

  constructor(appender: Appender, services: Services) {
    this.id = appender.id;
    this.#appender = appender;
    this.#services = services;
  }

  /** Names a call in it, whose log has the rest. @throws AwaitError */
  refer(callId: string, requestId: string | number): Promise<void> {
    const named = this.#appender.refer(callId, requestId);
    void this.#written(named);
    return named;
  }

  /** As `event`. */
  send(message: JsonObject, last?: boolean): Promise<boolean> {
    return this.event({ event: 'message', data: messageText(message) }, last);
  }

  /**
   * @param last its connection is closed after it
   * @returns whether it is in the store
   */
  event(event: StreamEvent, last = false): Promise<boolean> {
    return this.#written(this.#appender.append(event, last));
  }

  /** Nothing follows. */
  finish(): void {
    void this.#written(this.#appender.finish());
  }

  /** If the append fails, the stream's next appender sends the rest. */
  #written(done: Promise<unknown>): Promise<boolean> {
    const { writing, settings } = this.#services;
    const failed = (error: unknown): boolean => {
      const { code, message } = AwaitError.from(error);
      if (code === 'fenced' || code === 'closed' || (code === 'limit' && this.#isFull)) return false;
      this.#isFull = code === 'limit';
      settings.logger.warn('an event could not be appended to its stream', {
        stream: this.#appender.name,
        error: message,
      });
      return false;
    };
    const settled = done.then(() => true, failed);
    writing.add(settled);
    void settled.then(() => writing.delete(settled));
    return settled;
  }
}
