/**
 * One client on one pipe: stdin and stdout, or a WebSocket. Each of its messages becomes, in this process, the exchange
 * that it would be over Streamable HTTP, and the reply goes back on the pipe. So every revision behaves on a pipe as
 * over HTTP, with one implementation of each.
 * It owns the pipe's session id and the open exchanges.
 * 1. Each message has its own era: one with the envelope of 2026-07-28 is of that revision, all others belong to the
 *    session that `initialize` began.
 * 2. A disconnect ends the open exchanges, as closed connections do; the owner chooses whether it ends the session too
 *    (`end`): a WebSocket that broke may come back, a closed stdin may not.
 * 3. A resumable client (`resume.ts`) gets its stream's position with each message.
 */
import { createParser } from 'eventsource-parser';
import { isObject, type JsonObject } from '../../src/base/json.ts';
import { RESUME } from '../../src/base/resume-meta.ts';
import { Departure } from '../../src/http/departure.ts';
import type { Inbound, SentReply, Writer } from '../../src/http/exchange.ts';
import { isRequestId } from '../../src/http/reply.ts';
import type { Source } from './exchange.ts';
import { headersOf, inboundOf, REVISION_META } from './exchange.ts';
import { lastEventOf, sessionOf, wantsResume, withEvent, withoutResume, withSession } from './resume.ts';

/** Where messages go. */
interface PipeEnd {
  /** @returns false when the client is behind: later messages wait in memory */
  send(text: string): boolean;
  readonly unsent: number;
  /** Calls each time that nothing waits any more; given once. */
  onDrain(fn: () => void): void;
  /** Breaks the pipe off: its client reads nothing. */
  destroy(): void;
}

export interface PipeParts {
  readonly serve: (inbound: Inbound) => Promise<SentReply>;
  readonly source: Source;
  readonly end: PipeEnd;
  /** Whether a client may come back to its session on another pipe. */
  readonly resumable: boolean;
  /** Called when the session that a client resumes does not exist. */
  readonly lost?: () => void;
}

/** The id of a request; none of a message without one. */
type Key = string | number | symbol | undefined;

/** An exchange: a message until its reply is whole. */
class Open {
  readonly key: Key;
  readonly gone = new Departure();
  close = (): void => {};

  constructor(key: Key) {
    this.key = key;
  }

  end(): void {
    this.gone.fire();
    this.close();
  }
}

/** In place of a request's id: a session's own stream. */
const STANDING = Symbol('standing');

export class Pipe {
  readonly #parts: PipeParts;
  readonly #open = new Set<Open>();
  /** Of the open streams: what each does once nothing waits for the client any more. */
  readonly #draining = new Set<() => void>();
  #session: string | undefined;
  #version: string | undefined;
  #resumes = false;
  #isOver = false;

  constructor(parts: PipeParts) {
    this.#parts = parts;
    parts.end.onDrain(() => {
      for (const fn of this.#draining) fn();
    });
  }

  /** One message, as text. */
  receive(text: string): void {
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      this.#send({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32700, message: 'Parse error: the message is not valid JSON' },
      });
      return;
    }
    void this.#received(body, text).catch(() => {
      const id = isObject(body) && isRequestId(body.id) ? body.id : null;
      this.#send({ jsonrpc: '2.0', id, error: { code: -32603, message: 'Internal error' } });
    });
  }

  /** Closes the pipe after the client disconnected, or to disconnect it. @param endSession it will not come back */
  async end(endSession: boolean): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const open of this.#open) open.end();
    this.#open.clear();
    if (endSession && this.#session !== undefined)
      await this.#exchange('DELETE', undefined, new Open(undefined));
  }

  async #received(body: unknown, text: string): Promise<void> {
    if (!isObject(body)) {
      await this.#post(undefined, body, text);
      return;
    }
    const { id, method } = body;
    if (method === RESUME) this.#comeBack(body);
    else if (method === 'notifications/cancelled' && !this.#isOfSession(body)) this.#cancel(body.params);
    else if (method === 'initialize') await this.#initialize(body);
    else {
      const from = this.#resumes ? lastEventOf(body) : undefined;
      const own = this.#resumes ? withoutResume(body) : body;
      const sent = own === body ? text : JSON.stringify(own);
      const key = typeof method === 'string' && isRequestId(id) ? id : undefined;
      if (from !== undefined && key !== undefined) await this.#follow(key, from);
      else await this.#post(key, own, sent);
      if (method === 'notifications/initialized' && this.#session !== undefined) void this.#follow(STANDING);
    }
  }

  async #initialize(body: JsonObject): Promise<void> {
    this.#resumes = this.#parts.resumable && wantsResume(body);
    await this.#post(isRequestId(body.id) ? body.id : undefined, body, JSON.stringify(withoutResume(body)));
  }

  /** A new pipe resumes the session of one that broke. */
  #comeBack(body: JsonObject): void {
    const back = sessionOf(body);
    if (!this.#parts.resumable || back === undefined) {
      this.#parts.lost?.();
      return;
    }
    this.#resumes = true;
    this.#session = back.session;
    this.#version = back.version;
    void this.#follow(STANDING, back.standing);
  }

  #isOfSession(body: JsonObject): boolean {
    return this.#session !== undefined && !isModern(body);
  }

  /** Without a session, a cancellation ends the request's exchange. */
  #cancel(params: unknown): void {
    const id = isObject(params) ? params.requestId : undefined;
    if (!isRequestId(id)) return;
    for (const open of this.#open) {
      if (open.key !== id) continue;
      open.end();
      this.#open.delete(open);
    }
  }

  async #post(key: Key, body: unknown, text: string): Promise<void> {
    const open = new Open(key);
    const headers = headersOf(body, this.#session, this.#version);
    const reply = await this.#exchange('POST', text, open, headers);
    if (isObject(body) && body.method === 'initialize') this.#began(reply);
    this.#pass(reply, open);
  }

  /** The events of a stream, after the one that the client had last. */
  async #follow(key: string | number | symbol, after?: string): Promise<void> {
    const open = new Open(key);
    const headers = {
      ...headersOf(undefined, this.#session, this.#version),
      ...(after !== undefined && { 'last-event-id': after }),
    };
    const reply = await this.#exchange('GET', undefined, open, headers);
    if (key === STANDING && reply.status === 404) this.#parts.lost?.();
    if (key === STANDING && reply.status >= 400) this.#open.delete(open);
    else this.#pass(reply, open);
  }

  #exchange(
    method: string,
    text: string | undefined,
    open: Open,
    headers: Readonly<Record<string, string>> = headersOf(undefined, this.#session, this.#version),
  ): Promise<SentReply> {
    this.#open.add(open);
    const { gone } = open;
    return this.#parts.serve(
      inboundOf(this.#parts.source, { method, headers, text, gone, repeats: this.#resumes }),
    );
  }

  #began({ headers, body }: SentReply): void {
    this.#session = headers['mcp-session-id'] ?? this.#session;
    if (typeof body !== 'string') return;
    const message: unknown = JSON.parse(body);
    const result = isObject(message) && isObject(message.result) ? message.result : {};
    if (typeof result.protocolVersion === 'string') this.#version = result.protocolVersion;
  }

  #pass({ status, body }: SentReply, open: Open): void {
    if (typeof body === 'function') {
      body(this.#writer(open));
      return;
    }
    this.#open.delete(open);
    const { key } = open;
    if (open.gone.aborted || this.#isOver) return;
    const message = parsed(body);
    // Notifications and responses get no reply; each request of a batch is replied to on its own.
    if (key === undefined && status < 400) return;
    if (message === undefined || isForHttp(message)) {
      if (typeof key === 'symbol' || key === undefined || status < 400) return;
      const [code, what] = status < 500 ? [-32600, 'Invalid Request'] : [-32603, 'Internal error'];
      this.#send({ jsonrpc: '2.0', id: key, error: { code, message: `${what} (${status})` } });
      return;
    }
    if (key === undefined && !Array.isArray(message) && isObject(message) && message.error === undefined)
      return;
    this.#send(this.#resumes && isObject(message) ? withSession(message, this.#session) : message);
  }

  /** The events of a stream as messages of the pipe. */
  #writer(open: Open): Writer {
    const { end } = this.#parts;
    const closing: (() => void)[] = [];
    let isClosed = false;
    let keepsUp = true;
    const close = (): void => {
      if (isClosed) return;
      isClosed = true;
      this.#open.delete(open);
      for (const fn of closing) fn();
    };
    open.close = close;
    const parser = createParser({
      onEvent: ({ data, id }) => {
        if (data === '' || isClosed) return;
        keepsUp = this.#sendEvent(data, id, open.key) && keepsUp;
      },
    });
    if (this.#isOver) queueMicrotask(close);
    return {
      write: (text) => {
        if (isClosed) return false;
        keepsUp = true;
        parser.feed(text);
        return keepsUp;
      },
      get unsent() {
        return end.unsent;
      },
      onDrain: (fn) => {
        if (isClosed) return;
        this.#draining.add(fn);
        closing.push(() => this.#draining.delete(fn));
      },
      limitsItself: true,
      end: close,
      destroy: () => {
        close();
        end.destroy();
      },
      onClose: (fn) => {
        if (isClosed) fn();
        else closing.push(fn);
      },
    };
  }

  #sendEvent(data: string, event: string | undefined, key: Key): boolean {
    if (!this.#resumes || event === undefined) return this.#parts.end.send(data);
    const request = typeof key === 'symbol' ? undefined : key;
    return this.#parts.end.send(JSON.stringify(withEvent(JSON.parse(data) as JsonObject, event, request)));
  }

  #send(message: unknown): void {
    if (!this.#isOver) this.#parts.end.send(JSON.stringify(message));
  }
}

/** A refusal that only HTTP has: a header carries the reason. */
function isForHttp(message: unknown): boolean {
  return isObject(message) && message.jsonrpc === undefined;
}

function parsed(body: string | undefined): unknown {
  if (body === undefined || body === '') return undefined;
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function isModern({ params }: JsonObject): boolean {
  return isObject(params) && isObject(params._meta) && params._meta[REVISION_META] !== undefined;
}
