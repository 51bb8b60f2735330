/**
 * The outcome of a request that fails before its call began. The reason goes to the logger, since no caller awaits the
 * error itself.
 */

import { AwaitError, advice, type Reason } from '../src/base/values.ts';
import type { Outcome } from '../src/call/ports.ts';
import { LAST_WORDS } from '../src/call/run/turns.ts';
import { whyOf, wireError } from '../src/call/run/wire-error.ts';
import type { Inbound, Reply } from '../src/doors/http/exchange.ts';
import { rpcError } from '../src/doors/http/reply.ts';
import type { Services } from '../src/handler/services.ts';
import { expiryOf, streamIdOf } from '../src/stream/event-id.ts';

/** Why nothing was begun: the same request is good later, or at another process. */
const WHY = {
  /** Its process is leaving. */
  closed: whyOf('closed'),
  /** Its secrets cannot be had yet: nothing can be sealed, nor opened. */
  'not-ready': 'This server is not ready',
  store: 'The store of this server does not answer',
  /** This process runs as many requests as it may. */
  'no-room': whyOf('no-room'),
  'host-gone': whyOf('host-gone'),
} satisfies Partial<Record<Reason, string>>;

/** Whether a request that failed so may be sent again. */
export function isLater(code: string): code is keyof typeof WHY {
  return code in WHY;
}

/** A 503 whose request may be sent again. */
export function later(
  reason: keyof typeof WHY,
  id: string | number | null = null,
  why: string = WHY[reason],
): Reply {
  const message = `${why}; send the same request again`;
  const reply = rpcError(503, -32000, message, id, advice(reason, true));
  return { ...reply, headers: { ...reply.headers, 'retry-after': reason === 'closed' ? '1' : '5' } };
}

/** Refuses an answer that no open ask can take: its client must not read a 202. */
export function undelivered({ now }: Services, id: unknown): Reply {
  const [callId = ''] = String(id).split('/', 1);
  // Live calls end shortly before they expire.
  const isLate = expiryOf(streamIdOf(callId)) - LAST_WORDS <= now();
  const why = isLate
    ? 'the call that asked has expired'
    : 'no request with this id waits for an answer of this client';
  return rpcError(400, -32602, `Invalid params: ${why}`);
}

/** Refuses a `Last-Event-ID` of an unknown or foreign stream: one fixed sentence for every reason. */
export async function unknownEventId({ rates }: Services, inbound: Inbound): Promise<Reply> {
  await rates?.badToken(inbound);
  return rpcError(400, -32602, 'Invalid or expired Last-Event-ID');
}

/**
 * The same, from a `catch`: the reason goes to the logger.
 * @throws the error itself, if it is about something else
 */
export async function refusedEventId(services: Services, inbound: Inbound, thrown: unknown): Promise<Reply> {
  const { code, message, cause } = AwaitError.from(thrown);
  if (code !== 'bad-token') throw thrown;
  services.settings.logger.warn(message, { cause });
  return unknownEventId(services, inbound);
}

/** For a `catch`: the reason goes to the logger, and a frozen sentence to the client. */
export function failure({ settings }: Services): (thrown: unknown) => Outcome {
  return (thrown) => {
    const error = AwaitError.from(thrown);
    settings.logger.error(error.message, { code: error.code, cause: error.cause });
    return { kind: 'responded', response: { error: wireError(error) } };
  };
}
