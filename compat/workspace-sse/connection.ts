/** The GET of a workspace: opens a stream or resumes one, and checks its owner. */
import type { Allowance } from '../../src/base/allowance.ts';
import { AwaitError } from '../../src/base/error.ts';
import type { Inbound, Reply } from '../../src/http/exchange.ts';
import { pageOf } from '../../src/http/origin.ts';
import { rpcError } from '../../src/http/reply.ts';
import { expiryOf, isStandingId, parseEventId, unknownEvent } from '../../src/stream/event-id.ts';
import type { Found } from '../../src/stream/event-streams.ts';
import { refusedEventId } from '../failure.ts';
import type { Services } from '../services.ts';
import { LEAST_LIFETIME } from '../session/identity.ts';
import { sinkOf } from '../sink.ts';
import { takerOf } from '../taker.ts';
import { type Calls, unknownClient } from './calls.ts';
import { type Channel, type Channels, type Kind, type Owner, openedName, scopeOf } from './channels.ts';
import { type Listeners, nameOf } from './listeners.ts';
import { FRAMING, HEADERS, lifecycle, STREAM, timestamp } from './wire.ts';

export interface Connections {
  readonly services: Services;
  readonly calls: Calls;
  readonly channels: Channels;
  readonly listeners: Listeners;
  /** Open GETs, bounded as sessions are. */
  readonly room: Allowance;
}

/** How far clocks may differ, in milliseconds. */
const MARGIN = 300_000;

/**
 * The caller in a workspace, as a digest: the principal, or for an anonymous one, the address, the address that proxies
 * forward, the page's origin and the user agent. Clients that agree in all of these differ by the stream they name.
 */
export function whoIs({ principal, workspace }: Owner, inbound: Inbound): string {
  if (principal !== undefined) return nameOf('known', workspace, principal);
  const told = ['forwarded', 'x-forwarded-for', 'user-agent'].map((name) => inbound.header(name));
  return nameOf('anonymous', workspace, inbound.address, pageOf(inbound), ...told);
}

export async function listen(parts: Connections, inbound: Inbound, owner: Owner): Promise<Reply> {
  if (!/text\/(event-stream|\*)|\*\/\*/.test(inbound.header('accept') ?? '*/*')) {
    return rpcError(406, -32000, 'Not Acceptable: Client must accept text/event-stream');
  }
  const last = inbound.header('last-event-id');
  if (last === undefined || last === '') {
    const channel = parts.channels.make(owner, 'get');
    await channel.opened();
    return connected(
      parts,
      inbound,
      channel,
      await parts.services.streams.find(channel.id, 0, channel.scope),
    );
  }
  try {
    const { id, kind, found } = await resumed(parts.services, owner, last);
    return await connected(parts, inbound, parts.channels.of(owner, id, kind), found, last);
  } catch (error) {
    return refusedEventId(parts.services, inbound, error);
  }
}

/** @throws AwaitError `bad-token` when this owner has no such stream, or not this event in it; `store` */
async function resumed(
  { streams, settings, store, now }: Services,
  owner: Owner,
  last: string,
): Promise<{ readonly id: string; readonly kind: Kind; readonly found: Found }> {
  const opened = last.length <= settings.limits.eventIdBytes ? /^(.+)_0$/.exec(last)?.[1] : undefined;
  const latest = now() + Math.max(settings.ttl, LEAST_LIFETIME) + MARGIN;
  if (opened !== undefined && isStandingId(opened) && expiryOf(opened) <= latest) {
    const scope = scopeOf(owner, opened, 'get');
    if (store !== undefined && (await store.get(openedName(opened, scope))) === undefined)
      throw unknownEvent('it was never opened');
    return { id: opened, kind: 'get', found: await streams.find(opened, 0, scope) };
  }
  const id = parseEventId(last, settings.limits.eventIdBytes)?.stream ?? '';
  try {
    return { id, kind: 'get', found: await streams.resume(last, scopeOf(owner, id, 'get')) };
  } catch (error) {
    if (AwaitError.from(error).code !== 'bad-token') throw error;
    return { id, kind: 'post', found: await streams.resume(last, scopeOf(owner, id, 'post')) };
  }
}

/** @param last the event after which the client resumes */
async function connected(
  parts: Connections,
  inbound: Inbound,
  channel: Channel,
  found: Found,
  last?: string,
): Promise<Reply> {
  const { services, calls, listeners, room } = parts;
  const taker = takerOf(services, inbound);
  if (!room.has(taker)) {
    throw new AwaitError(
      'no-room',
      'a stream was refused: limits.sessions, callerSessions or anonymousSessions of them are open',
    );
  }
  const place = {};
  room.hold(place, taker);
  services.counters[last === undefined ? 'getStreams' : 'resumedStreams'] += 1;
  const isListening = channel.kind === 'get';
  const client = unknownClient(services.settings.workspace.capabilities);
  // Its client may post as soon as it knows that the stream is open.
  const unlist = isListening
    ? await listeners.open(whoIs(channel.owner, inbound), channel.id).catch((error: unknown) => {
        room.leave(place);
        throw error;
      })
    : () => {};
  const disconnect = channel.connect();
  const over = (): void => {
    room.leave(place);
    unlist();
    disconnect();
  };
  if (inbound.signal.aborted) over();
  else inbound.signal.addEventListener('abort', over, { once: true });
  return {
    status: 200,
    headers: { ...HEADERS, ...(isListening && { [STREAM]: channel.id }) },
    body: (writer) => {
      writer.onClose(over);
      // An id without data is not an event to parsers, but still moves the client's last event id. It is one write, so
      // that a client that knows of the stream has its id.
      const id = last === undefined ? `id: ${channel.id}_0\n\n` : '';
      writer.write(`${lifecycle('streamOpened', timestamp())}${id}`);
      const sink = sinkOf(services, writer, { framing: FRAMING });
      calls.follow(channel, { owner: channel.owner, inbound, client }, sink);
      void found.follow(sink);
    },
  };
}
