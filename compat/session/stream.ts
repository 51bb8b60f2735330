/** A stream of a session as the edge writes it: JSON-RPC messages as events, in the store before they are sent. */

import { AwaitError } from '../../src/base/error.ts';
import type { JsonObject } from '../../src/base/json.ts';
import type { Begun, NewCall } from '../../src/call/engine.ts';
import { messageText } from '../../src/http/reply.ts';
import type { Appender } from '../../src/stream/appender.ts';
import { callIdOf } from '../../src/stream/event-id.ts';
import type { End, StreamEvent } from '../../src/stream/log.ts';
import type { Services } from '../services.ts';

/** When a client whose stream was closed should reconnect, in milliseconds. */
export const RETRY = 1_000;

/** The stream for a call's notifications and asks. */
export interface CallStream {
  /** Its call writes nothing before it has something to lose. */
  readonly held?: {
    readonly how: Pick<NewCall, 'onDurable'>;
    /** Adds a call that other processes may take over, before its first event. */
    add(started: Begun): void;
  };
  send(message: JsonObject): unknown;
}

export class SessionStream implements CallStream {
  readonly id: string;
  /** The ids of its calls, where it has several; that of a single one follows from its own. */
  calls: readonly string[] | undefined;
  readonly #appender: Appender;
  readonly #services: Services;

  constructor(appender: Appender, services: Services) {
    this.id = appender.id;
    this.#appender = appender;
    this.#services = services;
    appender.owns = () => this.#isInTurn();
  }

  /** Whether one of its calls is in a turn here. */
  async #isInTurn(): Promise<boolean> {
    for (const callId of this.calls ?? [callIdOf(this.id)])
      if (await this.#services.engine.holds(callId)) return true;
    return false;
  }

  /** Whether it was taken over right behind an event. */
  follows(sequence: number): boolean {
    return this.#appender.takenAt === sequence + 1;
  }

  /** Whether a client may have an id of it to come back with. */
  get begun(): boolean {
    return !this.#appender.isNew;
  }

  /**
   * An event without content, so that the client has an id to come back with (2025-11-25).
   * @returns whether it is in the stream
   */
  prime(): Promise<boolean> {
    return this.#written(this.#appender.append({ data: '', retry: RETRY }));
  }

  /** @returns whether it is in the stream */
  send(message: JsonObject): Promise<boolean> {
    return this.#written(this.#appender.append({ event: 'message', data: messageText(message) }));
  }

  /**
   * @param last its connection is closed after it
   * @returns whether it is in the store
   */
  event(event: StreamEvent, last = false): Promise<boolean> {
    return this.#written(this.#appender.append(event, last));
  }

  /**
   * The last message: its connection is closed after it.
   * @param isKept whether the call's journal has it: then it is sent whichever process has the stream
   */
  end(message: JsonObject, isKept = false): void {
    const event = { event: 'message', data: messageText(message) };
    void this.#written(this.#appender.append(event, true, isKept));
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
      if (code === 'fenced' || code === 'closed') return false;
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

/**
 * Takes over a stream whose appender died, when this process has its first event for it.
 * @param end its last entry, if it is known
 */
export function takingOver(
  services: Services,
  id: string,
  scope: string,
  end?: End,
): () => Promise<SessionStream> {
  let stream: Promise<SessionStream> | undefined;
  return () => {
    stream ??= services.streams
      .takeOver(id, scope, end)
      .then((appender) => new SessionStream(appender, services));
    return stream;
  };
}
