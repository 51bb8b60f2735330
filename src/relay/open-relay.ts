/** Opens a relay by URL, as the command line takes it. */
import { importNamed, importPeer } from '../base/peer.ts';
import { optionError } from '../base/values.ts';
import type { Relay } from '../call/ports.ts';
import { inTime } from '../checkpoint/in-time.ts';
import { shown } from '../checkpoint/open-store.ts';
import { FIRST, unreachable } from '../checkpoint/unreachable.ts';
import { natsRelay } from './nats.ts';

const NATS: string = '@nats-io/transport-node';

/**
 * Opens a relay, and listens on it once, so one that cannot be reached fails here.
 *
 * @param url `redis://…`, `rediss://…`, `nats://…` or `tls://…`
 * @throws AwaitError `bad-option` for another scheme, or when the client's package is not installed; `store`, within
 * five seconds, when it cannot be reached
 */
export async function openRelay(url: string): Promise<Relay> {
  switch (/^([a-z]+):/.exec(url)?.[1]) {
    case 'redis':
    case 'rediss': {
      const { redisRelay } = await importPeer('@redis/client', () => import('./redis.ts'));
      const { createClient } = await import('@redis/client');
      // A client of its own: that of the relay tries for ever, and reports nothing.
      return tried(
        url,
        () => redisRelay(url),
        async () => {
          const client = createClient({ url, socket: { reconnectStrategy: false } });
          await client.on('error', () => {}).connect();
          client.destroy();
        },
      );
    }
    case 'nats':
    case 'tls':
      await importPeer(NATS, () => importNamed(NATS));
      return tried(url, () => natsRelay(url));
    default:
      throw optionError(`--relay ${shown(url)}: use redis://host:port or nats://host:port`);
  }
}

/** @throws AwaitError `store` */
async function tried(url: string, open: () => Relay, connect?: () => Promise<void>): Promise<Relay> {
  let relay: Relay | undefined;
  try {
    relay = open();
    if (connect !== undefined) await inTime(connect(), FIRST);
    const stop = await inTime(
      relay.listen(crypto.randomUUID(), () => {}),
      FIRST,
    );
    await stop();
    return relay;
  } catch (error) {
    void relay?.close().catch(() => {});
    throw unreachable('relay', url, error);
  }
}
