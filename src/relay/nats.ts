/**
 * `mcp-await/nats`: processes reach one another by NATS request and reply; the server reports at once when no process
 * listens under a name. https://docs.nats.io/nats-concepts/core-nats/reqreply
 */

import { importNamed } from '../base/peer.ts';
import { isObject, optionError, systemClock, within } from '../base/values.ts';
import type { Relay } from '../call/ports.ts';
import { Joined, partsOf } from './parts.ts';

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
    throw optionError(`natsRelay(${JSON.stringify(nats)}): use nats://host:port`);
  }
  let connection: Promise<NatsLike> | undefined;
  const open = (): Promise<NatsLike> => {
    if (typeof nats !== 'string') return Promise.resolve(nats);
    const dial = (client: unknown): Promise<NatsLike> =>
      (client as NatsClient).connect({ servers: nats, maxReconnectAttempts: -1 });
    connection ??= importNamed(CLIENT)
      .then(dial)
      .catch((error: unknown) => {
        connection = undefined;
        throw error;
      });
    return connection;
  };
  // Waits until the server knows that a name is listened to, or no longer: senders are acknowledged by that. A server that
  // cannot be reached is told later.
  const flushed = (): Promise<void> =>
    within(
      systemClock,
      RECEIPT,
      open().then((client) => client.flush()),
    );
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
      await flushed();
      return () => {
        subscription.unsubscribe();
        return flushed();
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
