/**
 * Reads server-sent events (WHATWG HTML, section 9.2), those without data among them.
 *
 * The standard drops an event that has no `data:` line, and so does every parser that keeps to it; SEP-1858's
 * `buffer_input` and `input_required` have none. So each such block gets an empty `data:` line before a standard parser
 * reads it.
 */
import { createParser, type EventSourceMessage } from 'eventsource-parser';

/**
 * How long a stream that is left early may take to end by itself, and how many pieces it may have until then: a connection
 * that is cut cannot be kept alive.
 */
const DRAIN_MS = 250;
const DRAIN_PIECES = 9;

/** Adds a `data:` line to a block that has an `event` or an `id` and none. */
class DataLines {
  /** A line that is not complete yet. */
  #partial = '';
  #named = false;
  #data = false;

  /** Returns the lines that `text` completes. */
  push(text: string): string {
    let lines = '';
    let start = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      lines += this.#ended(this.#partial + text.slice(start, end));
      this.#partial = '';
      start = end + 1;
    }
    this.#partial += text.slice(start);
    return lines;
  }

  #ended(line: string): string {
    if (line === '') {
      const lacking = this.#named && !this.#data;
      this.#named = false;
      this.#data = false;
      return lacking ? 'data:\n\n' : '\n';
    }
    if (/^data(:|$)/.test(line)) this.#data = true;
    else if (/^(event|id)(:|$)/.test(line)) this.#named = true;
    return `${line}\n`;
  }
}

/**
 * The events of a body, as they arrive. Its lines must end with LF, as those of a `boundedResponse` do. A caller that
 * leaves the loop early waits briefly for the body's end, and the rest is discarded, so that the connection serves the
 * next request.
 * Throws any error of reading. A block that the end of the body cuts off is dropped.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>,
  onRetry: (milliseconds: number) => void,
): AsyncGenerator<EventSourceMessage, void, void> {
  const events: EventSourceMessage[] = [];
  const parser = createParser({ onEvent: (event) => void events.push(event), onRetry });
  const lines = new DataLines();
  // A byte order mark at the start is the decoder's to take off.
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      parser.feed(lines.push(decoder.decode(value, { stream: true })));
      yield* events.splice(0);
    }
  } finally {
    await drain(reader);
  }
}

/** Reads a body to its end without looking, and gives up where the end does not come. */
export async function drainBody(body: ReadableStream<Uint8Array> | null): Promise<void> {
  if (body !== null) await drain(body.getReader());
}

async function drain(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  const cut = (): void => void reader.cancel().catch(() => {});
  const late = setTimeout(cut, DRAIN_MS);
  try {
    for (let left = DRAIN_PIECES; left > 0; left -= 1) if ((await reader.read()).done) return;
    cut();
  } catch {
    // A connection that broke needs no ending.
  } finally {
    clearTimeout(late);
  }
}
