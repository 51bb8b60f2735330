/**
 * `mcp-await/nats`: processes reach one another by NATS request and reply; the server reports at once when no process
 * listens under a name. https://docs.nats.io/nats-concepts/core-nats/reqreply
 */

import { randomUUID } from 'node:crypto';
import { importNamed } from '../base/peer.ts';
import { AwaitError, isObject, systemClock, within } from '../base/values.ts';
import type { Relay } from '../call/ports.ts';

const PREFIX = 'mcp-await.relay.';
/** How long a receipt may take, in milliseconds. */
const RECEIPT = 2_000;
/** Its types do not compile under `exactOptionalPropertyTypes` (3.4.0), so it is not imported by name. */
const CLIENT: string = '@nats-io/transport-node';

interface NatsMessage {
  respond(): boolean;
  readonly data: Uint8Array;
}

/** As much of a connection of `@nats-io/transport-node` (3) or `nats` (2) as is needed here. */
export interface NatsLike {
  readonly info?: { readonly max_payload: number } | undefined;
  subscribe(
    subject: string,
    options: { callback: (error: Error | null, message: NatsMessage) => void },
  ): { unsubscribe(): void };
  request(subject: string, payload: string | Uint8Array, options: { timeout: number }): Promise<unknown>;
  flush(): Promise<void>;
  close(): Promise<void>;
}

interface NatsClient {
  connect(options: { servers: string; maxReconnectAttempts: number }): Promise<NatsLike>;
}

/**
 * A relay over NATS request and reply.
 *
 * @param nats `nats://…`, `tls://…`, or a connection, which stays its owner's to close
 * @throws AwaitError `bad-option` for another URL
 *
 * @example
 * import { createAwaitHandler } from 'mcp-await';
 * import { natsRelay } from 'mcp-await/nats';
 * import buildServer from './server.js';
 *
 * const handler = createAwaitHandler(buildServer, { relay: natsRelay('nats://127.0.0.1:4222') });
 */
export function natsRelay(nats: string | NatsLike): Relay {
  if (typeof nats === 'string' && !/^(nats|tls):\/\//.test(nats)) {
    throw new AwaitError('bad-option', `natsRelay(${JSON.stringify(nats)}): use nats://host:port`);
  }
  let connection: Promise<NatsLike> | undefined;
  const open = (): Promise<NatsLike> => {
    if (typeof nats !== 'string') return Promise.resolve(nats);
    connection ??= dial(nats).catch((error: unknown) => {
      connection = undefined;
      throw error;
    });
    return connection;
  };
  return {
    async listen(name, hear) {
      const joined = new Joined();
      const subscription = (await open()).subscribe(PREFIX + name, {
        callback: (error, message) => {
          if (error !== null) return;
          message.respond();
          const whole = joined.add(message.data);
          if (whole !== undefined) hear(whole);
        },
      });
      await (await open()).flush();
      return async () => {
        subscription.unsubscribe();
        // Waits until the server has the subscription: before that, senders get no acknowledgement. If the server
        // cannot be reached, it gets the subscription later.
        const flushed = open().then((client) => client.flush());
        const known = flushed.catch(() => {});
        await within(systemClock, RECEIPT, known);
      };
    },
    async send(name, message) {
      const client = await open();
      // The server disconnects a client that sends more at once (its max_payload, 1 MiB by default).
      const most = client.info?.max_payload ?? Infinity;
      try {
        for (const part of partsOf(message, most)) {
          await client.request(PREFIX + name, part, { timeout: RECEIPT });
        }
        return true;
      } catch (error) {
        if (isNobody(error)) return false;
        throw error;
      }
    },
    async close() {
      await (await connection)?.close();
    },
  };
}

async function dial(servers: string): Promise<NatsLike> {
  const client = (await importNamed(CLIENT)) as NatsClient;
  return client.connect({ servers, maxReconnectAttempts: -1 });
}

/** Version 3 wraps it, version 2 gives it the status of the protocol. */
function isNobody(error: unknown): boolean {
  if (!isObject(error)) return false;
  const { name, cause, code } = error;
  return (
    name === 'NoResponders' ||
    name === 'NoRespondersError' ||
    code === '503' ||
    (cause !== undefined && isNobody(cause))
  );
}

// --- messages in parts ---

/** Messages that are longer than a server carries at once: sent in parts, and joined where they are heard. */

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
  const id = randomUUID();
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
