/**
 * What a server sends, passed on one message after the other and no faster than a rate: an array of many messages, a
 * flood of pings. What comes faster waits; its link reads no further meanwhile, if it can. A request may be work (its
 * schema is compiled), so others get their turn after each. What waits is bounded in number and in memory, for links
 * that cannot wait.
 */
import { type JsonObject, memoryOf } from '../base/json.ts';

/** The window in which messages are counted, in milliseconds. */
const WINDOW = 100;
/** Messages that may wait. */
const MOST = 100_000;
/** Memory of those, in bytes; one message may take more. */
const MOST_MEMORY = 67_108_864;
/** Places of messages that were passed on, before the list is shortened. */
const PASSED = 1_000;

export interface InflowOptions {
  /** Messages a second. */
  readonly rate: number;
  readonly pass: (message: JsonObject) => void;
  /** Nothing waits any more. */
  readonly drained?: () => void;
  /** It cannot be read any longer. */
  readonly failed: (reason: string) => void;
}

interface QueuedMessage {
  readonly message: JsonObject;
  /** 0 for one that does not wait. */
  readonly memory: number;
}

export class Inflow {
  readonly #options: InflowOptions;
  #waiting: (QueuedMessage | undefined)[] = [];
  /** The first that waits; those before it were passed on, and are not kept. */
  #next = 0;
  /** Of what waits. */
  #memory = 0;
  #readers: (() => void)[] = [];
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

  /** Resolves once nothing waits, when more may be read; undefined where nothing does. */
  ready(): Promise<void> | undefined {
    if (!this.isBehind || this.#isOver) return undefined;
    return new Promise((resolve) => this.#readers.push(resolve));
  }

  push(message: JsonObject): void {
    if (this.#isOver) return;
    const memory = this.isBehind ? Math.min(memoryOf(message), MOST_MEMORY) : 0;
    const isFull = this.#memory > 0 && this.#memory + memory > MOST_MEMORY;
    if (isFull || this.#waiting.length - this.#next >= MOST) {
      this.#fail(`it sent more than ${this.#options.rate} messages a second for long`);
      return;
    }
    this.#memory += memory;
    this.#waiting.push({ message, memory });
    if (this.#timer === undefined) this.#work();
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#empty();
  }

  #empty(): void {
    this.#waiting = [];
    this.#next = 0;
    this.#memory = 0;
    for (const read of this.#readers.splice(0)) read();
  }

  /** The first that waits, which waits no longer. */
  #take(): JsonObject | undefined {
    const first = this.#waiting[this.#next];
    this.#waiting[this.#next] = undefined;
    this.#next += 1;
    this.#memory -= first?.memory ?? 0;
    if (this.#next < PASSED || this.#next * 2 < this.#waiting.length) return first?.message;
    this.#waiting = this.#waiting.slice(this.#next);
    this.#next = 0;
    return first?.message;
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
        const message = this.#take();
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
    this.#empty();
    this.#options.drained?.();
  }

  #fail(reason: string): void {
    this.close();
    this.#options.failed(reason);
  }
}
