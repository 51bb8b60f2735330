/**
 * Request bodies that are being received. A client may begin any number of them and end none, so their bytes are
 * bounded together; above the bound the oldest one is broken off, which on a network that works is never an honest
 * client's.
 */
import { AwaitError } from '../base/error.ts';
import { tooLarge } from './exchange.ts';

/** Smallest room that is made for a body that comes in pieces, in bytes. */
const FIRST_ROOM = 4_096;

export class Bodies {
  readonly #most: number;
  /** For each body, the oldest first, the function that breaks it off. */
  readonly #open = new Map<Body, (error: AwaitError) => void>();
  #bytes = 0;

  /** @param most bytes of all bodies that are being received */
  constructor(most: number) {
    this.#most = most;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** @param breakOff called to stop receiving it; at most once, and not after `over` */
  begin(maxBytes: number, breakOff: (error: AwaitError) => void): Body {
    const body = new Body(
      maxBytes,
      (more) => this.#grow(more),
      (held) => {
        if (this.#open.delete(body)) this.#bytes -= held;
      },
    );
    this.#open.set(body, breakOff);
    return body;
  }

  #grow(more: number): void {
    this.#bytes += more;
    for (const [oldest, breakOff] of this.#open) {
      if (this.#bytes <= this.#most) return;
      oldest.over();
      breakOff(
        new AwaitError(
          'no-room',
          'a slow body was broken off: all bodies being received reached limits.receivedBytes',
        ),
      );
    }
  }
}

/** One body: pieces are copied into one buffer, since a piece of one byte costs a hundred as an object. */
export class Body {
  readonly #maxBytes: number;
  readonly #grow: (more: number) => void;
  readonly #release: (held: number) => void;
  #buffer: Uint8Array = new Uint8Array(0);
  #length = 0;

  constructor(maxBytes: number, grow: (more: number) => void, release: (held: number) => void) {
    this.#maxBytes = maxBytes;
    this.#grow = grow;
    this.#release = release;
  }

  /** @throws AwaitError `limit` when it is longer than it may be */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.byteLength;
    if (length > this.#maxBytes) throw tooLarge(this.#maxBytes);
    if (this.#length === 0) this.#resize(piece, piece.byteLength);
    else {
      if (length > this.#buffer.byteLength) {
        const room = Buffer.allocUnsafe(Math.min(Math.max(2 * length, FIRST_ROOM), this.#maxBytes));
        room.set(this.#buffer.subarray(0, this.#length));
        this.#resize(room, room.byteLength);
      }
      this.#buffer.set(piece, this.#length);
    }
    this.#length = length;
  }

  text(): string {
    return Buffer.from(this.#buffer.buffer, this.#buffer.byteOffset, this.#length).toString('utf8');
  }

  /** Nothing more is received of it; its text can still be had. */
  over(): void {
    this.#release(this.#buffer.byteLength);
  }

  #resize(buffer: Uint8Array, bytes: number): void {
    const before = this.#buffer.byteLength;
    this.#buffer = buffer;
    this.#grow(bytes - before);
  }
}
