/**
 * A POST's own body, for a client without an open GET. A response without earlier messages is the whole body, and is
 * not stored. Earlier messages make it a stream, with ids for resuming.
 */
import type { JsonObject } from '../../src/base/json.ts';
import type { Gone } from '../../src/call/ports.ts';
import { Departure } from '../../src/http/departure.ts';
import type { GuardedWriter, Reply } from '../../src/http/exchange.ts';
import type { Sink } from '../../src/stream/tail.ts';
import type { Services } from '../services.ts';
import { sinkOf } from '../sink.ts';
import type { Channel } from './channels.ts';
import { eventText, FRAMING, HEADERS, responseEvent } from './wire.ts';

export class OwnBody {
  readonly reply: Reply;
  /** Fires when the client goes away and has nothing to come back with. */
  readonly gone = new Departure();
  readonly #services: Services;
  readonly #make: () => Channel;
  /** Writes the records that must exist before the client sees a stream. */
  readonly #onStream: (channel: Channel) => Promise<void>;
  #connection: { readonly writer: GuardedWriter; readonly sink: Sink } | undefined;
  #channel: Channel | undefined;
  #lone: string | undefined;

  constructor(
    services: Services,
    signal: Gone,
    make: () => Channel,
    onStream: (channel: Channel) => Promise<void>,
  ) {
    this.#services = services;
    this.#make = make;
    this.#onStream = onStream;
    this.reply = { status: 200, headers: HEADERS, body: (writer) => this.#connect(writer) };
    const onAbort = (): void => {
      if (this.#channel === undefined) this.gone.fire();
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  }

  say(message: JsonObject): void {
    if (this.#channel === undefined) {
      this.#channel = this.#make();
      this.#follow();
    }
    this.#channel.say(message);
  }

  /** Whether other processes may continue it. */
  get isStream(): boolean {
    return this.#channel !== undefined;
  }

  /** @param message undefined where there is nothing to say */
  respond(message: JsonObject | undefined): void {
    if (this.#channel !== undefined) {
      if (message === undefined) this.#channel.unanswered();
      else void this.#channel.respond(message);
      return;
    }
    this.#lone = message === undefined ? '' : eventText(responseEvent(message));
    this.#writeLone();
  }

  #connect(writer: GuardedWriter): void {
    this.#services.counters.postStreams += 1;
    const sink = sinkOf(this.#services, writer, { framing: FRAMING });
    this.#connection = { writer, sink };
    this.#writeLone();
    this.#follow();
  }

  #writeLone(): void {
    if (this.#connection === undefined || this.#lone === undefined) return;
    const { writer, sink } = this.#connection;
    if (this.#lone !== '') writer.write(this.#lone);
    sink.end('finished');
  }

  #follow(): void {
    if (this.#connection === undefined || this.#channel === undefined) return;
    const { sink } = this.#connection;
    const channel = this.#channel;
    sink.onClose(channel.connect());
    const begin = async (): Promise<void> => {
      await this.#onStream(channel);
      const found = await this.#services.streams.find(channel.id, 0, channel.scope);
      await found.follow(sink);
    };
    begin().catch((error: unknown) => {
      this.#services.settings.logger.warn('a stream cannot be followed', { error: String(error) });
      sink.end('failed');
    });
  }
}
