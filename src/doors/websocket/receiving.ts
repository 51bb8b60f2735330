/**
 * The memory that a socket's unfinished message takes. `ws` keeps slices of the chunks that it read, so that a fragment
 * of one byte keeps the whole chunk it came in, 64 KB where pongs fill it: chunks are counted whole until the message
 * ends (RFC 6455, section 5.2 has the frames).
 */

/** Frames of one message. A Go client's write buffer makes one of each 4 KB. */
export const MAX_FRAGMENTS = 2_048;
/** Chunks of one frame; a chunk has 1,400 bytes on most networks. */
export const MAX_CHUNKS = 16_384;
/** Bytes that a chunk and a fragment take besides their content, each an object. */
const OBJECT = 150;
/** The least opcode of a control frame. */
const CLOSE = 8;

export class Receiving {
  readonly #header = Buffer.alloc(14);
  /** Bytes of the header that are there. */
  #read = 0;
  /** Bytes of the frame's content that are still to come. */
  #left = 0;
  #opcode = 0;
  #isLast = false;
  #fragments = 0;
  #kept = 0;
  /** Messages, pings and pongs that are whole, and of which `ws` has told nothing yet; none once it is closing. */
  events = 0;

  /** @returns bytes that the unfinished message keeps, after this chunk */
  add(chunk: Buffer): number {
    for (let at = 0; at < chunk.byteLength; ) {
      if (this.#left > 0) {
        const part = Math.min(this.#left, chunk.byteLength - at);
        at += part;
        this.#left -= part;
      } else {
        this.#header[this.#read] = chunk[at] ?? 0;
        this.#read += 1;
        at += 1;
        if (this.#read < this.#headerLength()) continue;
        this.#begin();
      }
      if (this.#left === 0) this.#end();
    }
    if (this.#fragments > 0 || this.#read > 0 || this.#left > 0) this.#kept += chunk.byteLength + OBJECT;
    return this.#kept + this.#fragments * OBJECT;
  }

  /** A client's frames have a mask. */
  #headerLength(): number {
    if (this.#read < 2) return 2;
    const length = (this.#header[1] ?? 0) & 0x7f;
    return 6 + (length === 126 ? 2 : length === 127 ? 8 : 0);
  }

  #begin(): void {
    const [first = 0, second = 0] = this.#header;
    const length = second & 0x7f;
    this.#left =
      length === 126
        ? this.#header.readUInt16BE(2)
        : length === 127
          ? Number(this.#header.readBigUInt64BE(2))
          : length;
    this.#read = 0;
    this.#opcode = first & 0x0f;
    this.#isLast = (first & 0x80) !== 0;
    if (this.#opcode < CLOSE) this.#fragments += 1;
  }

  #end(): void {
    if (this.#opcode === CLOSE) this.events = -Infinity;
    if (this.#isLast) {
      this.events += 1;
      if (this.#opcode < CLOSE) this.#fragments = 0;
    }
    // Nothing of an earlier chunk is needed between two messages.
    if (this.#fragments === 0) this.#kept = 0;
  }
}
