/** One request of 2026-07-28 over HTTP: a POST whose reply is one response, with notifications before it. */

import { mediaType } from '../../base/bounded-response.ts';
import { AwaitError } from '../../base/values.ts';
import { type Endpoint, EndpointError } from '../endpoint.ts';
import { readEvents } from '../event-stream.ts';
import {
  type ClientRequest,
  isAnswer,
  isRequest,
  parseMessages,
  type Rpc,
  type RpcAnswer,
} from '../message.ts';
import type { Opened } from '../round-trips/round-trips.ts';

export interface ExchangeParts {
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Aborted when its client cancels it: the disconnect is the cancellation. */
  readonly signal: AbortSignal;
  /** Gets the messages before the response. */
  readonly hear: (message: Rpc) => void;
  readonly report: (error: Error) => void;
}

/**
 * @returns once the server has taken the request; its `answer` rejects where the reply ends without a response
 * @throws EndpointError where the server refuses it
 */
export async function exchange(
  endpoint: Endpoint,
  request: ClientRequest,
  { headers, signal, hear, report }: ExchangeParts,
): Promise<Opened> {
  const response = await endpoint.post(JSON.stringify(request), headers, signal);
  const answer = new Promise<RpcAnswer>((resolve, reject) => {
    const take = (text: string): boolean => {
      let isOver = false;
      for (const message of parseMessages(text)) {
        if (isAnswer(message)) {
          resolve(message);
          isOver = true;
        } else if (!isRequest(message)) hear(message);
        else report(new Error(`A server of 2026-07-28 sent a request: ${message.method}`));
      }
      return isOver;
    };
    const none = new AwaitError('stream', 'A request ended without its result; the call may have run.');
    readReply(response, take).then(() => reject(none), reject);
  });
  return { answer };
}

/** @param take returns whether that was the response: nothing follows, whether the server ends its stream or not */
async function readReply(response: Response, take: (text: string) => boolean): Promise<void> {
  const type = mediaType(response);
  if (type === 'application/json') {
    take(await response.text());
    return;
  }
  if (type !== 'text/event-stream' || response.body === null) {
    const text = await response.text();
    throw new EndpointError(-1, `Unexpected content type: ${response.headers.get('content-type')}`, text);
  }
  for await (const { event, data } of readEvents(response.body, () => {})) {
    if (data !== '' && (event === undefined || event === 'message') && take(data)) return;
  }
}
