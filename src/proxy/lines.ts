/** Splits a byte stream into lines of bounded length. */

const NEWLINE = 0x0a;

export class Lines {
  readonly #longest: number;
  readonly #onLine: (line: string) => void;
  #chunks: Buffer[] = [];
  #size = 0;

  /** @param longest bytes of one line */
  constructor(longest: number, onLine: (line: string) => void) {
    this.#longest = longest;
    this.#onLine = onLine;
  }

  /** @returns false when a line is longer than it may be; nothing more may be pushed then */
  push(chunk: Buffer): boolean {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      if (!this.#add(chunk.subarray(from, at))) return false;
      from = at + 1;
      this.flush();
    }
    return this.#add(chunk.subarray(from));
  }

  /** Counts the rest without a line break as a line. */
  flush(): void {
    const line = Buffer.concat(this.#chunks).toString('utf8').replace(/\r$/, '');
    this.#chunks = [];
    this.#size = 0;
    if (line.trim() !== '') this.#onLine(line);
  }

  #add(part: Buffer): boolean {
    this.#size += part.byteLength;
    if (this.#size > this.#longest) {
      this.#chunks = [];
      return false;
    }
    if (part.byteLength > 0) this.#chunks.push(part);
    return true;
  }
}
