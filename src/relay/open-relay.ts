/** Opens a relay by URL, as the command line takes it. */

import { AwaitError } from '../base/error.ts';
import type { Relay } from '../call/ports.ts';
import { shown } from '../checkpoint/open-store.ts';
import { natsRelay } from './nats.ts';

const NATS: string = '@nats-io/transport-node';

/**
 * @param url `redis://…`, `rediss://…`, `nats://…` or `tls://…`
 * @throws AwaitError `bad-option` for another scheme, or when the client's package is not installed
 */
export async function openRelay(url: string): Promise<Relay> {
  switch (/^([a-z]+):/.exec(url)?.[1]) {
    case 'redis':
    case 'rediss':
      return (await load('@redis/client', () => import('./redis.ts'))).redisRelay(url);
    case 'nats':
    case 'tls':
      await load(NATS, () => import(NATS));
      return natsRelay(url);
    default:
      throw new AwaitError('bad-option', `--relay ${shown(url)}: use redis://host:port or nats://host:port`);
  }
}

async function load<T>(name: string, importer: () => Promise<T>): Promise<T> {
  try {
    return await importer();
  } catch (error) {
    throw new AwaitError('bad-option', `this relay needs the package ${name}: npm install ${name}`, error);
  }
}
