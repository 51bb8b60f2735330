/** The reply to a live call, as its client reads it from the call's log: which events an entry is. */
import type { JsonObject } from '../../src/base/values.ts';
import {
  CANCELLED,
  type CallRecord,
  type Entry,
  isEnd,
  type Response,
} from '../../src/call/journal/entries.ts';
import { messageText } from '../../src/doors/http/reply.ts';
import type { Projection } from '../../src/stream/call-connections.ts';
import type { StreamEvent } from '../../src/stream/log.ts';
import { RETRY_LATER } from '../../src/stream/sse-sink.ts';
import { askMessage, withdrawal } from './start.ts';
import { RETRY } from './stream.ts';

/** How a message is written. @param isResponse whether it is the response to the request */
type EventOf = (message: JsonObject, isResponse?: boolean) => StreamEvent;

/** @param primes whether the reply begins with an event without content, so that its client has an id (2025-11-25) */
export function liveProjection(
  call: Pick<CallRecord, 'id' | 'requestId'>,
  primes: boolean,
  eventOf: EventOf = messageEvent,
): Projection {
  return (entry) => ({
    kind: 'events',
    events: eventsOf(call, entry, primes, eventOf),
    last: isEnd(entry),
  });
}

function eventsOf(
  { id, requestId }: Pick<CallRecord, 'id' | 'requestId'>,
  entry: Entry,
  primes: boolean,
  eventOf: EventOf,
): StreamEvent[] {
  switch (entry.type) {
    case 'called':
      return primes ? [{ data: '', retry: RETRY }] : [];
    case 'asked':
      return [{ ...eventOf(askMessage(id, entry.ask)), ...(primes && { retry: RETRY_LATER }) }];
    case 'withdrawn':
      return [eventOf(withdrawal(id, entry.key))];
    case 'completed':
      return entry.isLate && entry.completion.kind === 'answer'
        ? [eventOf(withdrawal(id, entry.completion.key))]
        : [];
    case 'notified':
      return entry.messages.map((message) => eventOf(message));
    case 'ended':
      return [eventOf({ jsonrpc: '2.0', id: requestId, ...entry.response }, true)];
    case 'cancelled':
      return entry.isErased ? [eventOf({ jsonrpc: '2.0', id: requestId, ...CANCELLED }, true)] : [];
    default:
      return [];
  }
}

export function responseEvent(requestId: string | number, response: Response): StreamEvent {
  return messageEvent({ jsonrpc: '2.0', id: requestId, ...response });
}

export function messageEvent(message: JsonObject): StreamEvent {
  return { event: 'message', data: messageText(message) };
}
