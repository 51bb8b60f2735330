/** A stream of a session as the edge writes it: JSON-RPC messages as events, in the store before they are sent. */
import type { JsonObject } from '../../src/call/json.ts';
import { AwaitError } from '../../src/error.ts';
import type { Appender } from '../../src/stream/appender.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import type { Services } from '../services.ts';

/** When a client whose stream was closed should come back, in milliseconds. */
const RETRY = 1_000;

export class SessionStream {
  readonly id: string;
  readonly #appender: Appender;
  readonly #services: Services;

  constructor(appender: Appender, services: Services) {
    this.id = appender.id;
    this.#appender = appender;
    this.#services = services;
  }

  /** An event without content, so that the client has an id to come back with (2025-11-25). */
  prime(): void {
    this.#written(this.#appender.append({ data: '', retry: RETRY }));
  }

  send(message: JsonObject): void {
    this.#written(this.#appender.append({ event: 'message', data: JSON.stringify(message) }));
  }

  event(event: StreamEvent): void {
    this.#written(this.#appender.append(event));
  }

  /** The last message: its connection is closed after it. */
  end(message: JsonObject): void {
    this.#written(this.#appender.append({ event: 'message', data: JSON.stringify(message) }, true));
  }

  /** Nothing follows. */
  finish(): void {
    this.#written(this.#appender.finish());
  }

  /** Who appends to it now tells the rest; what cannot be written is not told. */
  #written(done: Promise<unknown>): void {
    const { writing, settings } = this.#services;
    const settled = done.catch((error: unknown) => {
      const { code, message } = AwaitError.from(error);
      if (code === 'fenced' || code === 'closed') return;
      settings.logger.warn('an event could not be appended to its stream', {
        stream: this.id,
        error: message,
      });
    });
    writing.add(settled);
    void settled.then(() => writing.delete(settled));
  }
}
