/**
 * The wire of one column, between a client and its sites: sends each POST to the next site, and keeps every message.
 */
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { createParser } from 'eventsource-parser';
import { isObject, type JsonObject, objectOf, sleep, systemClock } from '../base/values.ts';
import { listen, shut } from './site.ts';
import { questionOf } from './user.ts';

export type MessageKind = 'request' | 'ask' | 'answer' | 'result' | 'error' | 'notification' | 'other';

export interface WireMessage {
  /** Milliseconds since the column's first message. */
  readonly at: number;
  /** Index of the step in which it went by; -1 before the first. */
  readonly step: number;
  readonly from: 'client' | 'server';
  readonly kind: MessageKind;
  /** The process it went to or came from: `A`, `B`, or the name of a version. */
  readonly process: string;
  /** In a few words. */
  readonly label: string;
  /** `POST`, `GET`, `200`, `SSE response` and the like. */
  readonly via: string;
  readonly bytes: number;
  readonly message: unknown;
}

export interface Target {
  readonly name: string;
  readonly url: string;
}

/** How often a request is sent again after its process ended without a reply. */
const TRIES = 20;
const PAUSE = 50;
/** Characters of a message's label; the rest is in its JSON. */
const LABEL = 300;

export class PlayWire {
  readonly messages: WireMessage[] = [];
  /** POSTs that went by. */
  posts = 0;
  bytes = 0;
  step = -1;
  /** Attempts at a request whose process ends before it responds. */
  tries = TRIES;
  /** Whether a process ended by itself: the request that did that must not end the next one. */
  isLost: () => boolean = () => false;
  /** Called after each message. */
  onMessage: ((message: WireMessage) => void) | undefined;
  /** Where requests go; each POST to the next one. */
  targets: readonly Target[];
  readonly #server: Server;
  #url = '';
  #gets = 0;
  #began: number | undefined;

  private constructor(targets: readonly Target[]) {
    this.targets = targets;
    this.#server = createServer((req, res) => void this.#pass(req, res));
  }

  static async open(targets: readonly Target[]): Promise<PlayWire> {
    const wire = new PlayWire(targets);
    wire.#url = await listen(wire.#server);
    return wire;
  }

  get url(): string {
    return this.#url;
  }

  close(): Promise<void> {
    return shut(this.#server);
  }

  async #pass(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await textOf(req);
    const nth = req.method === 'POST' ? this.posts++ : this.#gets++;
    const pick = (): Target | undefined => this.targets[nth % this.targets.length];
    if (body !== '') this.#keep('client', pick()?.name ?? '', req.method ?? '', body);
    let current: ReturnType<typeof httpRequest> | undefined;
    res.once('close', () => current?.destroy());
    for (let tries = 1; !res.destroyed && tries <= this.tries; tries += 1) {
      if (tries > 1) await sleep(systemClock, PAUSE);
      if (this.isLost()) break;
      const target = pick();
      if (target === undefined) continue;
      const reply = await new Promise<IncomingMessage | undefined>((resolve) => {
        const headers = { ...req.headers, host: new URL(target.url).host };
        current = httpRequest(
          target.url + (req.url ?? '/'),
          { method: req.method, headers, agent: false },
          resolve,
        );
        current.once('error', () => resolve(undefined));
        current.end(body);
      });
      if (reply !== undefined) return this.#answer(reply, res, target.name);
    }
    if (!res.headersSent) res.writeHead(502);
    res.end();
  }

  #answer(reply: IncomingMessage, res: ServerResponse, name: string): void {
    const status = reply.statusCode ?? 502;
    res.writeHead(status, reply.headers);
    res.flushHeaders();
    const isStream = String(reply.headers['content-type']).startsWith('text/event-stream');
    const parser = createParser({
      onEvent: ({ event, data }) => this.#keep('server', name, `SSE ${event ?? 'message'}`, data),
    });
    const chunks: Buffer[] = [];
    const decoder = new TextDecoder();
    reply.on('data', (chunk: Buffer) => {
      res.write(chunk);
      if (isStream) parser.feed(decoder.decode(chunk, { stream: true }));
      else chunks.push(chunk);
    });
    reply.once('end', () => {
      const text = Buffer.concat(chunks).toString('utf8');
      if (text !== '') this.#keep('server', name, String(status), text);
      res.end();
    });
    reply.once('error', () => res.destroy());
  }

  #keep(from: WireMessage['from'], process: string, via: string, text: string): void {
    const now = performance.now();
    this.#began ??= now;
    const bytes = Buffer.byteLength(text);
    this.bytes += bytes;
    const parsed = parse(text);
    for (const message of Array.isArray(parsed) ? parsed : [parsed]) {
      const { kind, label: words } = described(message, from, via);
      const label = words.length > LABEL ? `${words.slice(0, LABEL)}…` : words;
      const at = Math.round((now - this.#began) * 10) / 10;
      const kept = { at, step: this.step, from, kind, process, label, via, bytes, message };
      this.messages.push(kept);
      this.onMessage?.(kept);
    }
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Names a message in the same words for every revision. */
function described(
  message: unknown,
  from: WireMessage['from'],
  via: string,
): { readonly kind: MessageKind; readonly label: string } {
  if (!isObject(message)) {
    if (message === '' && via === 'SSE message') return { kind: 'other', label: 'an event without data' };
    return { kind: 'other', label: via.startsWith('SSE ') ? via.slice(4) : 'body' };
  }
  const { method, params = {}, result, error, id } = message;
  const words = objectOf(params);
  if (typeof method === 'string') {
    if (from === 'server' && id !== undefined) return { kind: 'ask', label: questionOf(method, words) };
    if (id === undefined) return { kind: 'notification', label: method };
    const answered = words.inputResponses ?? message.input_responses;
    if (isObject(answered))
      return { kind: 'answer', label: Object.values(answered).map(answerLabel).join(' / ') };
    const target = words.name ?? words.uri;
    return { kind: 'request', label: target === undefined ? method : `${method} ${String(target)}` };
  }
  if (isObject(error))
    return { kind: 'error', label: `error ${String(error.code)}: ${String(error.message)}` };
  if (from === 'client') return { kind: 'answer', label: answerLabel(result) };
  const asks = asksIn(message);
  if (asks !== undefined) return { kind: 'ask', label: asks.join(' / ') || 'nothing asked: call again' };
  return { kind: 'result', label: isObject(result) ? resultLabel(result) : 'result' };
}

/** The asks in a result with round trips; `undefined` if it is complete. */
function asksIn(message: JsonObject): string[] | undefined {
  const result = objectOf(message.result);
  const requests = result.inputRequests ?? message.input_requests;
  if (!isObject(requests)) return result.resultType === 'input_required' ? [] : undefined;
  return Object.values(requests).map((ask) =>
    isObject(ask) ? questionOf(String(ask.method), objectOf(ask.params)) : 'an ask',
  );
}

function answerLabel(answer: unknown): string {
  const inner = isObject(answer) && isObject(answer.result) ? answer.result : answer;
  if (!isObject(inner)) return 'answer';
  if (inner.action !== undefined) {
    return inner.content === undefined
      ? String(inner.action)
      : `${String(inner.action)} ${JSON.stringify(inner.content)}`;
  }
  if (Array.isArray(inner.roots)) return `${inner.roots.length} roots`;
  return isObject(inner.content) ? `sample: ${String(inner.content.text)}` : 'answer';
}

function resultLabel(result: JsonObject): string {
  const [first]: unknown[] = Array.isArray(result.content) ? result.content : [];
  if (isObject(first)) return String(first.text ?? first.type);
  return (
    Object.keys(result)
      .filter((name) => name !== '_meta')
      .join(', ') || 'empty result'
  );
}
