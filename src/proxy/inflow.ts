/**
 * What a server sends, passed on one message after the other and no faster than a rate: an array of many messages, a
 * flood of pings, of empty lines, of bytes. What comes faster waits; its link reads no further meanwhile, if it can. A
 * request may be work (its schema is compiled), so others get their turn after each. What a link holds of its server
 * (messages that wait, a line that is not whole) counts in the budget of all links; where that is full, the link that
 * has held bytes for longest is ended.
 */
import type { Account, OpenAccount } from '../base/budget.ts';
import type { JsonObject } from '../base/values.ts';
import { FULL, heldMemory } from './link.ts';

/** The window in which messages are counted, in milliseconds. */
const WINDOW = 100;
/** So many lines that are read, and so many bytes, count as one message. */
const LINES = 10;
const BYTES = 16_384;

export interface InflowOptions {
  /** Messages a second. */
  readonly rate: number;
  /** Opens the account of its link. */
  readonly account?: OpenAccount;
  readonly pass?: (message: JsonObject) => void;
  /** Ended where it cannot be read any longer. */
  readonly link?: { kill(reason: string): void };
}

interface QueuedMessage {
  readonly message: JsonObject;
  /** 0 for one that does not wait. */
  readonly memory: number;
}

export class Inflow {
  readonly #options: InflowOptions;
  readonly #account: Account | undefined;
  /** The first one is next. */
  readonly #waiting = new Set<QueuedMessage>();
  /** Of what waits. */
  #memory = 0;
  /** Of the line that is not whole. */
  #unfinished = 0;
  #readers: (() => void)[] = [];
  /** Messages of this window; more than it may have are those of the next ones. */
  #used = 0;
  #windowEnds = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(options: InflowOptions) {
    this.#options = options;
    this.#account = options.account?.(() => this.#fail(FULL));
  }

  get isBehind(): boolean {
    return this.#timer !== undefined;
  }

  /** Resolves once nothing waits, when more may be read; undefined where nothing does. */
  ready(): Promise<void> | undefined {
    if (!this.isBehind || this.#isOver) return undefined;
    return new Promise((resolve) => this.#readers.push(resolve));
  }

  push(message: JsonObject): void {
    if (this.#isOver) return;
    const memory = this.isBehind ? heldMemory(message) : 0;
    this.#memory += memory;
    this.#waiting.add({ message, memory });
    this.#count();
    if (this.#timer === undefined) this.#work();
  }

  /** So much was read, whatever it was. @param unfinished memory of the line that is not whole, in bytes */
  took(lines: number, bytes: number, unfinished = 0): void {
    this.#unfinished = unfinished;
    this.#count();
    this.#used += lines / LINES + bytes / BYTES;
    if (this.#timer === undefined && !this.#isOver) this.#work();
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#waiting.clear();
    this.#account?.close();
    this.#drained();
  }

  /** May end this link, and others. */
  #count(): void {
    this.#account?.set(this.#memory + this.#unfinished);
  }

  #drained(): void {
    for (const read of this.#readers.splice(0)) read();
  }

  #work(): void {
    this.#timer = undefined;
    const most = (this.#options.rate * WINDOW) / 1_000;
    const now = performance.now();
    const past = Math.floor((now - this.#windowEnds) / WINDOW) + 1;
    if (past > 0) {
      this.#windowEnds = now + WINDOW;
      this.#used = Math.max(0, this.#used - past * most);
    }
    let isRequest = false;
    try {
      for (const queued of this.#waiting) {
        if (isRequest || this.#used >= most || this.#isOver) break;
        this.#waiting.delete(queued);
        this.#memory -= queued.memory;
        const { id, method } = queued.message;
        isRequest = id !== undefined && method !== undefined;
        this.#used += isRequest ? 2 : 1;
        this.#options.pass?.(queued.message);
      }
    } catch (error) {
      this.#fail(`a message of it could not be handled: ${String(error)}`);
    }
    this.#count();
    if (this.#isOver) return;
    if (isRequest || this.#waiting.size > 0 || this.#used >= most)
      this.#timer = setTimeout(() => this.#work(), isRequest ? 1 : Math.max(this.#windowEnds - now, 1));
    else this.#drained();
  }

  #fail(reason: string): void {
    this.close();
    this.#options.link?.kill(reason);
  }
}
