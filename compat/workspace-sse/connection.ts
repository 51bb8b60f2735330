/** The GET of a workspace: opens a stream or resumes one, and checks its owner. */

import type { Quota } from '../../src/base/quota.ts';
import { AwaitError } from '../../src/base/values.ts';
import { type CallRecord, isEnd } from '../../src/call/journal/entries.ts';
import type { Inbound, Reply } from '../../src/doors/http/exchange.ts';
import { pageOf } from '../../src/doors/http/origin.ts';
import { noStream } from '../../src/doors/http/reply.ts';
import type { Services } from '../../src/handler/services.ts';
import {
  callIdOf,
  expiryOf,
  isStandingId,
  parseEventId,
  parseLastingId,
  unknownEvent,
} from '../../src/stream/event-id.ts';
import type { StreamPlace } from '../../src/stream/event-streams.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { refusedEventId } from '../failure.ts';
import { callAt, connect, follow, hasAll, logOf } from '../session/call-reply.ts';
import { LEAST_LIFETIME } from '../session/identity.ts';
import { type LastingStart, namedCalls, withCalls } from '../session/lasting.ts';
import { sinkOf } from '../sink.ts';
import { type Calls, unknownClient } from './calls.ts';
import { type Channels, openedName, type StreamOwner, scopeOf, type WorkspaceChannel } from './channels.ts';
import { type Listeners, nameOf } from './listeners.ts';
import { FRAMING, HEADERS, lifecycle, STREAM, timestamp } from './wire.ts';

export interface WorkspaceParts {
  readonly services: Services;
  readonly calls: Calls;
  readonly channels: Channels;
  readonly listeners: Listeners;
  /** Open GETs, bounded as sessions are. */
  readonly room: Quota;
}

/** How far clocks may differ, in milliseconds. */
const MARGIN = 300_000;

/**
 * The caller in a workspace, as a digest: the principal, or for an anonymous one, the address, the address that proxies
 * forward, the page's origin and the user agent. Clients that agree in all of these differ by the stream they name.
 */
export function whoIs({ principal, workspace }: StreamOwner, inbound: Inbound): string {
  if (principal !== undefined) return nameOf('known', workspace, principal);
  const told = ['forwarded', 'x-forwarded-for', 'user-agent'].map((name) => inbound.header(name));
  return nameOf('anonymous', workspace, inbound.address, pageOf(inbound), ...told);
}

export async function listen(parts: WorkspaceParts, inbound: Inbound, owner: StreamOwner): Promise<Reply> {
  if (!/text\/(event-stream|\*)|\*\/\*/.test(inbound.header('accept') ?? '*/*')) return noStream();
  const { services, room } = parts;
  if (!room.has(owner)) {
    throw new AwaitError('no-room', 'a stream was refused: a part of limits.sessions is in use');
  }
  const place = {};
  // Before anything is kept of it.
  room.hold(place, owner);
  const leave = (): void => room.leave(place);
  const last = inbound.header('last-event-id') ?? '';
  try {
    const followed = await (last === ''
      ? opened(parts, inbound, owner)
      : resumed(parts, inbound, owner, last));
    return await connected(parts, inbound, owner, followed, leave, last);
  } catch (error) {
    leave();
    return refusedEventId(services, inbound, error);
  }
}

/** What a connection reads. */
interface Followed {
  /** Absent where it is the rest of a POST's own body. */
  readonly channel?: WorkspaceChannel;
  readonly follow: (sink: Sink) => void;
}

/** A new stream. @throws AwaitError `store` */
async function opened(parts: WorkspaceParts, inbound: Inbound, owner: StreamOwner): Promise<Followed> {
  const channel = parts.channels.make(owner);
  await channel.opened();
  const from = { had: { prefix: channel.id, sequence: 0, calls: new Map() }, calls: [], lost: [] };
  const found = await parts.services.streams.find(channel.id, 0, channel.scope, owner.principal);
  return { channel, follow: streamOf(parts, inbound, channel, found, from) };
}

/** @throws AwaitError `bad-token` when this owner has no such stream, or not this event in it; `store` */
async function resumed(
  parts: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  last: string,
): Promise<Followed> {
  const { streams, settings, store, now } = parts.services;
  const had = parseLastingId(last, settings.limits.eventIdBytes);
  if (had === undefined || !isStandingId(had.prefix)) return ownBody(parts, inbound, owner, last);
  const id = had.prefix;
  const scope = scopeOf(owner, id);
  if (had.sequence === 0) {
    const latest = now() + Math.max(settings.ttl, LEAST_LIFETIME) + MARGIN;
    if (!(expiryOf(id) <= latest)) throw unknownEvent('no stream lives so long');
    if (store !== undefined && (await store.get(openedName(id, scope))) === undefined)
      throw unknownEvent('it was never opened');
  }
  const found = await streams.find(id, had.sequence, scope, owner.principal);
  const named = await namedCalls(parts.calls.exchange({ owner, inbound }), had, { id, scope });
  const channel = parts.channels.of(owner, id);
  return { channel, follow: streamOf(parts, inbound, channel, found, { had, ...named }) };
}

/** The rest of a POST's own body. @throws AwaitError as `resumed` */
async function ownBody(
  { calls, services }: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  last: string,
): Promise<Followed> {
  const exchange = calls.exchange({ owner, inbound });
  const event = parseEventId(last, services.settings.limits.eventIdBytes);
  const found = event && (await callAt(exchange, callIdOf(event.stream), event.sequence));
  if (event === undefined || found === undefined) throw unknownEvent('it is of no call of this caller');
  if (await isCancelled(services, found.call, event.sequence)) throw unknownEvent('its call was cancelled');
  const reply = logOf(
    found.call,
    calls.dialect({ owner, client: unknownClient(services.settings.workspaceCapabilities) }),
  );
  const rest = (sink: Sink): void => {
    if (hasAll(found, event)) {
      sink.end('finished');
      return;
    }
    const connection = connect(exchange, reply, event);
    connection.attach(sink);
    void follow(exchange, reply, connection);
  };
  return { follow: rest };
}

/** @param from the position in its log of an entry that is there */
async function isCancelled(
  { logs }: Services,
  { id: callId, principal }: CallRecord,
  from: number,
): Promise<boolean> {
  for (let at = from; ; at += 1) {
    const entry = await logs.read(callId, at, principal);
    if (entry === undefined || isEnd(entry)) return entry?.type === 'cancelled';
  }
}

/** A GET's stream, with the events of its calls. */
function streamOf(
  { calls, services }: WorkspaceParts,
  inbound: Inbound,
  channel: WorkspaceChannel,
  found: StreamPlace,
  from: Omit<LastingStart, 'dialect'>,
): Followed['follow'] {
  const { owner } = channel;
  const client = unknownClient(services.settings.workspaceCapabilities);
  const exchange = calls.exchange({ owner, inbound }, channel);
  const dialect = calls.dialect({ owner, client }, channel);
  return (sink) => void found.follow(withCalls(exchange, { dialect, ...from }, sink));
}

/**
 * @param leave gives up its place among open GETs
 * @param last the event after which the client resumes; empty where it is new
 */
async function connected(
  { services, listeners }: WorkspaceParts,
  inbound: Inbound,
  owner: StreamOwner,
  { channel, follow }: Followed,
  leave: () => void,
  last: string,
): Promise<Reply> {
  services.counters[last === '' ? 'getStreams' : 'resumedStreams'] += 1;
  // Its client may post as soon as it knows that the stream is open.
  const unlist = channel ? await listeners.open(whoIs(owner, inbound), channel.id) : () => {};
  const disconnect = channel?.connect();
  let isOver = false;
  const over = (): void => {
    if (isOver) return;
    isOver = true;
    leave();
    unlist();
    disconnect?.();
  };
  inbound.signal.addEventListener('abort', over, { once: true });
  return {
    status: 200,
    headers: { ...HEADERS, ...(channel && { [STREAM]: channel.id }) },
    body: (writer) => {
      writer.onClose(over);
      // An id without data is not an event to parsers, but still moves the client's last event id. It is one write, so
      // that a client that knows of the stream has its id.
      // One that comes back has it again: it may know no more than what came on this connection.
      const had = last || (channel && `${channel.id}_0`);
      writer.write(`${lifecycle('streamOpened', timestamp())}${had ? `id: ${had}\n\n` : ''}`);
      follow(sinkOf(services, writer, { framing: FRAMING }));
    },
  };
}
