/**
 * What a server sends, passed on one message after the other and no faster than a rate: an array of many messages, a
 * flood of pings. What comes faster waits; its link reads no further meanwhile, if it can. A request may be work (its
 * schema is compiled), so others get their turn after each.
 */
import type { JsonObject } from '../base/json.ts';

/** The window in which messages are counted, in milliseconds. */
const WINDOW = 100;
/** Messages that may wait. */
const MOST = 100_000;

export interface InflowOptions {
  /** Messages a second. */
  readonly rate: number;
  readonly pass: (message: JsonObject) => void;
  /** Nothing waits any more. */
  readonly drained?: () => void;
  /** It cannot be read any longer. */
  readonly failed: (reason: string) => void;
}

export class Inflow {
  readonly #options: InflowOptions;
  #waiting: JsonObject[] = [];
  /** The first that waits. */
  #next = 0;
  #passed = 0;
  #windowEnds = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(options: InflowOptions) {
    this.#options = options;
  }

  get isBehind(): boolean {
    return this.#timer !== undefined;
  }

  push(message: JsonObject): void {
    if (this.#isOver) return;
    if (this.#waiting.length - this.#next >= MOST) {
      this.#fail(`it sent more than ${this.#options.rate} messages a second for long`);
      return;
    }
    this.#waiting.push(message);
    if (this.#timer === undefined) this.#work();
  }

  close(): void {
    this.#isOver = true;
    this.#waiting = [];
    clearTimeout(this.#timer);
  }

  #work(): void {
    this.#timer = undefined;
    const now = performance.now();
    if (now >= this.#windowEnds) {
      this.#windowEnds = now + WINDOW;
      this.#passed = 0;
    }
    const most = (this.#options.rate * WINDOW) / 1_000;
    let isRequest = false;
    try {
      for (; this.#next < this.#waiting.length && this.#passed < most && !this.#isOver; this.#passed += 1) {
        const message = this.#waiting[this.#next];
        this.#next += 1;
        if (message === undefined) continue;
        this.#options.pass(message);
        if (message.id === undefined || message.method === undefined) continue;
        isRequest = true;
        this.#passed += 1;
        break;
      }
    } catch (error) {
      this.#fail(`a message of it could not be handled: ${String(error)}`);
    }
    if (this.#isOver) return;
    if (isRequest || this.#next < this.#waiting.length) {
      this.#timer = setTimeout(() => this.#work(), isRequest ? 1 : Math.max(this.#windowEnds - now, 1));
      return;
    }
    this.#waiting = [];
    this.#next = 0;
    this.#options.drained?.();
  }

  #fail(reason: string): void {
    this.close();
    this.#options.failed(reason);
  }
}
