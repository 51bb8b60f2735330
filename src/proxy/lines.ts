/** Splits a byte stream into lines of bounded length. */

const NEWLINE = 0x0a;
/** Room that is kept from one line to the next, in bytes. */
const KEPT = 65_536;

export class Lines {
  readonly #longest: number;
  readonly #onLine: (line: string) => void;
  /** Begins with the unfinished line. A list of chunks would take a hundred times the bytes of one that comes in single bytes. */
  #room: Buffer = Buffer.alloc(0);
  #size = 0;

  /** @param longest bytes of one line */
  constructor(longest: number, onLine: (line: string) => void) {
    this.#longest = longest;
    this.#onLine = onLine;
  }

  /** Memory of the unfinished line, in bytes. */
  get memory(): number {
    return this.#room.byteLength;
  }

  /** @returns how many lines ended, empty ones too; undefined when one is longer than it may be: push nothing more then */
  push(chunk: Buffer): number | undefined {
    let from = 0;
    let ended = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      if (!this.#add(chunk.subarray(from, at))) return undefined;
      from = at + 1;
      ended += 1;
      this.flush();
    }
    return this.#add(chunk.subarray(from)) ? ended : undefined;
  }

  /** Counts the rest without a line break as a line. */
  flush(): void {
    if (this.#size === 0) return;
    const line = this.#room.toString('utf8', 0, this.#size).replace(/\r$/, '');
    this.#size = 0;
    if (this.#room.byteLength > KEPT) this.#room = Buffer.alloc(0);
    if (line.trim() !== '') this.#onLine(line);
  }

  #add(part: Buffer): boolean {
    const size = this.#size + part.byteLength;
    if (size > this.#longest) {
      this.#size = 0;
      return false;
    }
    if (size > this.#room.byteLength) {
      const room = Buffer.allocUnsafe(Math.max(size, Math.min(2 * size, this.#longest)));
      this.#room.copy(room, 0, 0, this.#size);
      this.#room = room;
    }
    part.copy(this.#room, this.#size);
    this.#size = size;
    return true;
  }
}
