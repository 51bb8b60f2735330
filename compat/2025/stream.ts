/**
 * The SSE streams of one session: one for each POST, and the standing one of GET. Every event has an id
 * (`{streamId}_{sequence}`); a stream that lost its connection goes on under a GET with `Last-Event-ID`.
 * What is kept is bounded, and kept in this process.
 */
import type { JsonObject } from '../../src/call/json.ts';
import type { Writer } from '../../src/http/exchange.ts';
import { SSE_KEEP_ALIVE, sseClosing, sseEvent, sseMessage } from '../../src/stream/sse.ts';

const EVENTS_KEPT = 500;
const KEEP_ALIVE = 15_000;
/** When a client whose stream was closed should come back, in milliseconds. */
const RETRY = 1_000;

export class SessionStream {
  readonly id: string;
  /** The standing stream of a session stays open; a POST's ends with its last response. */
  readonly standing: boolean;
  readonly #events: { readonly sequence: number; readonly text: string }[] = [];
  #sequence = 0;
  /** The last event that a connection was given. */
  #delivered = 0;
  #writer: Writer | undefined;
  #timer: NodeJS.Timeout | undefined;
  #complete = false;

  constructor(id: string, standing = false) {
    this.id = id;
    this.standing = standing;
  }

  get connected(): boolean {
    return this.#writer !== undefined;
  }

  get complete(): boolean {
    return this.#complete;
  }

  /** An event without content, so that the client has an id to come back with (2025-11-25). */
  prime(): void {
    this.#push((id) => sseEvent({ id, retry: RETRY, data: '' }));
  }

  send(message: JsonObject): void {
    this.#push((id) => sseMessage(message, id));
  }

  /** Nothing follows. */
  finish(reason?: string): void {
    this.#complete = true;
    if (reason !== undefined) this.#writer?.write(sseClosing(reason));
    this.disconnect();
  }

  /** Ends the connection and keeps the stream: its client comes back. */
  disconnect(): void {
    clearInterval(this.#timer);
    const writer = this.#writer;
    this.#writer = undefined;
    writer?.end();
  }

  /** Whether everything after `sequence` is still kept. */
  reaches(sequence: number): boolean {
    const [first] = this.#events;
    return sequence <= this.#sequence && (first === undefined || first.sequence <= sequence + 1);
  }

  /** Follows the stream from what no connection has had yet. */
  attachNew(writer: Writer): void {
    this.attach(writer, this.#delivered);
  }

  /** Follows the stream from after `sequence`; a newer connection ends an older one. */
  attach(writer: Writer, sequence: number): void {
    this.disconnect();
    for (const event of this.#events) if (event.sequence > sequence) writer.write(event.text);
    this.#delivered = this.#sequence;
    if (this.#complete) {
      writer.end();
      return;
    }
    this.#writer = writer;
    this.#timer = setInterval(() => writer.write(SSE_KEEP_ALIVE), KEEP_ALIVE).unref();
    writer.onClose(() => {
      if (this.#writer !== writer) return;
      clearInterval(this.#timer);
      this.#writer = undefined;
    });
  }

  #push(render: (id: string) => string): void {
    this.#sequence += 1;
    const text = render(`${this.id}_${this.#sequence}`);
    this.#events.push({ sequence: this.#sequence, text });
    if (this.#events.length > EVENTS_KEPT) this.#events.shift();
    if (this.#writer === undefined) return;
    this.#writer.write(text);
    this.#delivered = this.#sequence;
  }
}

/** Takes an event's id apart; undefined when it is none of ours. */
export function parseEventId(id: string): { stream: string; sequence: number } | undefined {
  const match = /^([\w-]{1,64})_(\d{1,12})$/.exec(id);
  return match?.[1] === undefined ? undefined : { stream: match[1], sequence: Number(match[2]) };
}
