/** Messages that are longer than a server carries at once: sent in parts, and joined where they are heard. */
import { AwaitError } from '../base/values.ts';

/** Bytes of the longest message, and of all parts that wait for their others. */
const LONGEST = 67_108_864;
/** Messages of which parts may be missing; the oldest is dropped first. */
const INCOMPLETE = 100;
/** Bytes for the head of a part, and what a part that is kept costs besides its bytes. */
const HEAD = 128;
const OVERHEAD = 256;
/** Begins a part; no whole message does. */
const MARK = 0;
const NEWLINE = 0x0a;

/**
 * The parts of a message, in order.
 * @param most bytes that can be sent at once
 * @throws AwaitError `limit`
 */
export function partsOf(message: string, most: number): readonly (string | Uint8Array)[] {
  const length = Buffer.byteLength(message);
  if (length <= most) return [message];
  if (length > LONGEST) {
    const told = `a message of ${length} bytes is longer than a relay carries (${LONGEST})`;
    throw new AwaitError('limit', told);
  }
  const bytes = Buffer.from(message);
  const size = most - HEAD;
  const count = Math.ceil(length / size);
  const id = crypto.randomUUID();
  return Array.from({ length: count }, (_, at) =>
    Buffer.concat([Buffer.from(`\0${id} ${at} ${count}\n`), bytes.subarray(at * size, (at + 1) * size)]),
  );
}

interface Incomplete {
  readonly parts: (Buffer | undefined)[];
  missing: number;
  bytes: number;
}

/** Joins the parts of messages again, in any order. */
export class Joined {
  readonly #incomplete = new Map<string, Incomplete>();
  #bytes = 0;

  /** Bytes of the parts that are kept. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @returns the message, if this was all of it or its last part */
  add(data: Uint8Array): string | undefined {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    if (bytes[0] !== MARK) return bytes.toString();
    const end = bytes.subarray(0, HEAD).indexOf(NEWLINE);
    const [id = '', nth, of] = bytes.subarray(1, Math.max(end, 1)).toString().split(' ');
    const [at, count] = [Number(nth), Number(of)];
    if (end < 0 || !Number.isInteger(at) || !(at >= 0 && at < count && count <= LONGEST / HEAD))
      return undefined;
    // A copy: the client's bytes may be part of a buffer that it uses again, or keeps.
    return this.#part(id, at, count, Buffer.from(bytes.subarray(end + 1)));
  }

  #part(id: string, at: number, count: number, part: Buffer): string | undefined {
    const message = this.#incomplete.get(id) ?? { parts: [], missing: count, bytes: 0 };
    if (message.parts[at] !== undefined) return undefined;
    this.#incomplete.set(id, message);
    message.parts[at] = part;
    message.missing -= 1;
    const kept = part.byteLength + OVERHEAD;
    message.bytes += kept;
    this.#bytes += kept;
    if (message.missing > 0) {
      for (const oldest of this.#incomplete.keys()) {
        if (this.#incomplete.size <= INCOMPLETE && this.#bytes <= LONGEST) break;
        this.#drop(oldest);
      }
      return undefined;
    }
    this.#drop(id);
    return Buffer.concat(message.parts.filter((one) => one !== undefined)).toString();
  }

  #drop(id: string): void {
    this.#bytes -= this.#incomplete.get(id)?.bytes ?? 0;
    this.#incomplete.delete(id);
  }
}
