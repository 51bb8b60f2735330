/**
 * Messages between two processes over the relay. A line delivers in order and once; a gap, a message that cannot be
 * sent, or silence ends it.
 */
import type { JsonObject } from '../base/values.ts';
import { isRpcMessage } from './link.ts';

/** Time between two signs of life, and how long the other end may be silent, in milliseconds. */
const ALIVE = 1_000;
const SILENT = 10_000;
/** Messages of a line that may arrive before an earlier one. */
const EARLY = 1_000;

export interface LineEvents {
  readonly hear: (message: JsonObject) => void;
  /** Called once, however it ended. @param planned the other end lost its server on purpose */
  readonly ended: (planned: boolean) => void;
}

interface LineParts extends LineEvents {
  readonly send: (name: string, message: JsonObject) => Promise<boolean>;
  readonly failed: (error: unknown) => void;
  readonly forget: () => void;
}

/** Messages between two processes, numbered from 1 in each direction. */
export class Line {
  readonly #id: string;
  readonly #own: string;
  readonly #parts: LineParts;
  #to: string | undefined;
  #said = 0;
  #heard = 0;
  #heardAt = performance.now();
  readonly #early = new Map<number, JsonObject>();
  #sending: Promise<unknown> = Promise.resolve();
  #onWelcome: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(id: string, to: string | undefined, own: string, parts: LineParts) {
    this.#id = id;
    this.#to = to;
    this.#own = own;
    this.#parts = parts;
    if (to !== undefined) this.#stayAlive();
  }

  say(message: JsonObject): void {
    this.#said += 1;
    this.#post({ n: this.#said, message });
  }

  welcome(): void {
    this.#post({ welcome: true });
  }

  /** @returns whether the other end answered within that time, in milliseconds */
  welcomed(within: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), within);
      this.#onWelcome = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  received({ from, welcome, over, planned, n, message }: JsonObject): void {
    // Where two processes have a server for this client, both welcome it; the first one is used.
    if (this.#to !== undefined && from !== this.#to) return;
    this.#heardAt = performance.now();
    if (welcome === true && this.#to === undefined && typeof from === 'string') {
      this.#to = from;
      this.#stayAlive();
      this.#onWelcome?.();
    }
    if (over === true) this.#ended(planned === true);
    if (typeof n !== 'number' || n <= this.#heard || !isRpcMessage(message)) return;
    this.#early.set(n, message);
    if (this.#early.size > EARLY) this.end();
    for (let next = this.#early.get(this.#heard + 1); next !== undefined && !this.#isOver; ) {
      this.#heard += 1;
      this.#early.delete(this.#heard);
      this.#parts.hear(next);
      next = this.#early.get(this.#heard + 1);
    }
  }

  end(planned = false): void {
    if (this.#isOver) return;
    this.#post({ over: true, planned });
    this.#ended(planned);
  }

  /** No process answered: nothing is sent. */
  forget(): void {
    this.#isOver = true;
    this.#parts.forget();
  }

  #post(body: JsonObject): void {
    const to = this.#to;
    if (to === undefined || this.#isOver) return;
    const message = { line: this.#id, from: this.#own, ...body };
    this.#sending = this.#sending
      .then(() => this.#parts.send(to, message))
      .then(
        (isHeard) => isHeard || this.#ended(),
        (error: unknown) => {
          if (this.#isOver) return;
          this.#parts.failed(error);
          // The other end may hear a shorter message.
          this.end();
        },
      );
  }

  #stayAlive(): void {
    this.#timer = setInterval(() => {
      // A message that is late by that much was lost.
      if (performance.now() - this.#heardAt > SILENT) this.end();
      else this.#post({ alive: true });
    }, ALIVE).unref();
  }

  #ended(planned = false): void {
    if (this.#isOver) return;
    this.forget();
    clearInterval(this.#timer);
    this.#parts.ended(planned);
  }
}
