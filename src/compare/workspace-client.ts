/** A client of `workspace-sse`, which has no official one: a POST, the events on its body, a POST for each answer. */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { isObject, type JsonObject } from '../base/values.ts';
import { headersOf, type OnAsk, type PlayedCaller, type Player } from './player.ts';

/** How often a broken body is resumed, and the pause before it in milliseconds. */
const RETRIES = 100;
const PAUSE = 100;

export async function openWorkspace(origin: string, who: PlayedCaller, onAsk: OnAsk): Promise<Player> {
  const url = new URL('/mcp/side-by-side', origin);
  const ended = new AbortController();
  let ids = 0;
  const send = (method: 'GET' | 'POST', signal: AbortSignal, more: RequestInit & { headers?: object } = {}) =>
    fetch(url, {
      ...more,
      method,
      signal,
      headers: {
        ...headersOf(who),
        'user-agent': who.name,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...more.headers,
      },
    });
  const post = (message: JsonObject, signal: AbortSignal): Promise<Response> =>
    send('POST', signal, { body: JSON.stringify({ jsonrpc: '2.0', ...message }) });

  const request = async (method: string, params: JsonObject, timeout: number): Promise<JsonObject> => {
    ids += 1;
    const id = `request-${ids}`;
    const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(timeout)]);
    const answered = new Set<unknown>();
    let outcome: JsonObject | undefined;
    let lastEventId: string | undefined;
    const take = (message: unknown): void => {
      if (!isObject(message)) return;
      if (message.id === id && message.method === undefined) outcome = message;
      else if (message.id !== undefined && !answered.has(message.id)) {
        answered.add(message.id);
        const asked = onAsk(String(message.method), isObject(message.params) ? message.params : {});
        // An answer that cannot be sent leaves its ask open, and the request to its time-out.
        void asked.then((result) => post({ id: message.id, result }, signal)).catch(() => {});
      }
    };
    const onEvent = (event: EventSourceMessage): void => {
      lastEventId = event.id ?? lastEventId;
      if (event.event !== 'lifecycle' && event.data !== '') take(JSON.parse(event.data));
    };
    let response = await post({ id, method, params }, signal);
    for (let retries = 0; ; retries += 1) {
      await readBody(response, onEvent, take).catch(() => {});
      signal.throwIfAborted();
      if (outcome !== undefined) return resultOf(outcome);
      if (lastEventId === undefined || retries === RETRIES)
        throw new Error('the stream ended without a response');
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      const headers = { accept: 'text/event-stream', 'last-event-id': lastEventId };
      response = await send('GET', signal, { headers }).catch(() => response);
    }
  };
  return { request, close: async () => ended.abort() };
}

async function readBody(
  response: Response,
  onEvent: (event: EventSourceMessage) => void,
  onMessage: (message: unknown) => void,
): Promise<void> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
    onMessage(await response.json());
    return;
  }
  const parser = createParser({ onEvent });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let read = await reader?.read(); read?.done === false; read = await reader?.read())
    parser.feed(read.value);
}

function resultOf({ result, error }: JsonObject): JsonObject {
  if (isObject(result)) return result;
  const { code, message, data } = isObject(error) ? error : {};
  throw Object.assign(new Error(String(message)), { code, data });
}
