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
 *
 * A pipe is a client of the handler in the same process: each message becomes the exchange that it would be over
 * Streamable HTTP, and the events of the reply become messages of the pipe. Its headers are read from the message
 * (2026-07-28) or kept by the pipe (session and version). So sessions, tasks, cancellation and subscriptions are one
 * implementation for every wire; the price is that an event's text is written and parsed once. What waits for a
 * client on stdout is in one place (`stdio.ts`), written piece by piece, so that a client that reads slowly is told
 * from one that does not.
 *
 * A broken socket is a broken connection. A client that asked for it in `initialize` gets the id of each event, and
 * resumes each stream by it (`docs/websocket.md`). A request that it sends again runs once: before it runs, its id
 * is inserted beside the session with the name of its stream (`compat/session/live.ts`), and a process that finds it
 * there follows that stream from its start.
 */
import { createParser } from 'eventsource-parser';
import { EVENT_META, REQUEST_META, RESUME, SESSION_META, VERSION_META } from '../../base/resume-meta.ts';
import { CANCEL, defined, isObject, type JsonObject, objectOf } from '../../base/values.ts';
import { refuseText } from '../http/body.ts';
import { DisconnectSignal } from '../http/disconnect-signal.ts';
import type { Inbound, SentReply, Writer } from '../http/exchange.ts';
import { isRequestId } from '../http/reply.ts';
import { headersOf, inboundOf, type PipeSource, REVISION_META } from './exchange.ts';

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
  readonly source: PipeSource;
  readonly end: PipeEnd;
  /** Whether a client may come back to its session on another pipe. */
  readonly resumable: boolean;
  /** Values that a message may hold; default: any number. */
  readonly mostValues?: number;
  /** Called when the session that a client resumes does not exist. */
  readonly lost?: () => void;
  /** Called when a stream cannot be resumed for now: its client is to try again, on another pipe. */
  readonly failed?: () => void;
  /** Called when an exchange has ended. */
  readonly ended?: () => void;
}

/** The id of a request; none of a message without one. */
type Key = string | number | symbol | undefined;

/** An exchange: a message until its reply is whole. */
class OpenExchange {
  readonly key: Key;
  readonly gone = new DisconnectSignal();
  /** Whether a message of the client began it. */
  isMessage = false;
  close = (): void => {};

  constructor(key: Key) {
    this.key = key;
  }

  end(): void {
    this.gone.fire();
    this.close();
  }
}

/** How long after a stream broke it is read on, in milliseconds. */
const AGAIN = 1_000;
/** In place of a request's id: a session's own stream. */
const STANDING = Symbol('standing');

export class Pipe {
  readonly #parts: PipeParts;
  readonly #open = new Set<OpenExchange>();
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
    const refusal = refuseText(text, this.#parts.mostValues ?? Infinity);
    // Its client waits for a response to its request.
    if (refusal !== undefined) return void this.#respond(parsed(String(refusal.body)), idIn(text));
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      return void this.#fail(null, -32700, 'Parse error: the message is not valid JSON');
    }
    const id = isObject(body) && isRequestId(body.id) ? body.id : null;
    void this.#received(body, text).catch(() => this.#fail(id, -32603, 'Internal error'));
  }

  /** Whether every message received has its whole reply. */
  get isIdle(): boolean {
    for (const { isMessage } of this.#open) if (isMessage) return false;
    return true;
  }

  /** Closes the pipe after the client disconnected, or to disconnect it. @param endSession it will not come back */
  async end(endSession: boolean): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const open of this.#open) open.end();
    this.#open.clear();
    if (endSession && this.#session !== undefined)
      await this.#exchange('DELETE', undefined, new OpenExchange(undefined));
  }

  /** Not async, as `#post`: a message that waits for its reply would be kept, beside the copy that is served. */
  #received(body: unknown, text: string): Promise<void> {
    if (!isObject(body)) return this.#post(undefined, body, text);
    const { id, method } = body;
    if (method === RESUME) this.#comeBack(body);
    else if (method === CANCEL && (this.#session === undefined || metaOf(body)[REVISION_META] !== undefined))
      this.#cancel(body.params);
    else if (method === 'initialize') {
      this.#resumes = this.#parts.resumable && metaOf(body)[SESSION_META] === true;
      return this.#post(isRequestId(id) ? id : undefined, body, JSON.stringify(withoutResume(body)));
    } else {
      const from = this.#resumes ? textOrNone(metaOf(body)[EVENT_META]) : undefined;
      const own = this.#resumes ? withoutResume(body) : body;
      const sent = own === body ? text : JSON.stringify(own);
      const key = typeof method === 'string' && isRequestId(id) ? id : undefined;
      const done =
        from !== undefined && key !== undefined ? this.#follow(key, from) : this.#post(key, own, sent);
      if (method !== 'notifications/initialized') return done;
      return done.then(() => void (this.#session !== undefined && this.#follow(STANDING)));
    }
    return Promise.resolve();
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

  /** Without a session, a cancellation ends the request's exchange. */
  #cancel(params: unknown): void {
    const id = isObject(params) ? params.requestId : undefined;
    if (!isRequestId(id)) return;
    for (const open of this.#open) {
      if (open.key !== id) continue;
      open.end();
      this.#over(open);
    }
  }

  #post(key: Key, body: unknown, text: string): Promise<void> {
    const open = new OpenExchange(key);
    const headers = headersOf(body, this.#session, this.#version);
    const begins = isObject(body) && body.method === 'initialize';
    return this.#exchange('POST', text, open, headers).then((reply) => {
      if (begins) {
        this.#session = reply.headers['mcp-session-id'] ?? this.#session;
        if (typeof reply.body === 'string') {
          const { protocolVersion } = objectOf(objectOf(JSON.parse(reply.body)).result);
          if (typeof protocolVersion === 'string') this.#version = protocolVersion;
        }
      }
      this.#pass(reply, open);
    });
  }

  /** The events of a stream, after the one that the client had last. */
  async #follow(key: string | number | symbol, after?: string): Promise<void> {
    const open = new OpenExchange(key);
    const headers = {
      ...headersOf(undefined, this.#session, this.#version),
      ...defined({ 'last-event-id': after }),
    };
    const reply = await this.#exchange('GET', undefined, open, headers);
    const { status } = reply;
    if (status < 400) {
      this.#pass(reply, open);
      return;
    }
    this.#over(open);
    if (this.#resumes && status >= 500) this.#parts.failed?.();
    else if (status >= 500) this.#followLater(key, after);
    // What it had last was deleted meanwhile.
    else if (key === STANDING && status === 400 && after !== undefined) this.#followLater(key);
    else if (key === STANDING && status === 404) this.#parts.lost?.();
    // Its request has no other response.
    else if (typeof key !== 'symbol') this.#respond(parsed(String(reply.body)), key);
  }

  #followLater(key: Key, after?: string): void {
    if (key === undefined || this.#isOver) return;
    setTimeout(() => void (this.#isOver || this.#follow(key, after).catch(() => {})), AGAIN).unref();
  }

  #exchange(
    method: string,
    text: string | undefined,
    open: OpenExchange,
    headers: Readonly<Record<string, string>> = headersOf(undefined, this.#session, this.#version),
  ): Promise<SentReply> {
    this.#open.add(open);
    open.isMessage = text !== undefined;
    return this.#parts.serve(
      inboundOf(this.#parts.source, { method, headers, text, gone: open.gone, repeats: this.#resumes }),
    );
  }

  #over(open: OpenExchange): void {
    this.#open.delete(open);
    this.#parts.ended?.();
  }

  #pass({ status, body }: SentReply, open: OpenExchange): void {
    if (typeof body === 'function') {
      body(this.#writer(open));
      return;
    }
    this.#over(open);
    const { key } = open;
    if (open.gone.aborted || this.#isOver) return;
    const message = parsed(body);
    // Notifications and responses get no reply; each request of a batch is replied to on its own.
    if (key === undefined && status < 400) return;
    // A refusal that only HTTP has: a header carries the reason.
    if (message === undefined || (isObject(message) && message.jsonrpc === undefined)) {
      if (typeof key === 'symbol' || key === undefined || status < 400) return;
      const [code, what] = status < 500 ? [-32600, 'Invalid Request'] : [-32603, 'Internal error'];
      return void this.#fail(key, code as number, `${what} (${status})`);
    }
    if (key === undefined && !Array.isArray(message) && isObject(message) && message.error === undefined)
      return;
    this.#respond(this.#resumes && isObject(message) ? withSession(message, this.#session) : message, key);
  }

  /** The events of a stream as messages of the pipe. */
  #writer(open: OpenExchange): Writer {
    const { end } = this.#parts;
    const closing: (() => void)[] = [];
    let isClosed = false;
    let keepsUp = true;
    const close = (): void => {
      if (isClosed) return;
      isClosed = true;
      this.#over(open);
      for (const fn of closing) fn();
    };
    open.close = close;
    let last: string | undefined;
    const parser = createParser({
      onEvent: ({ data, id }) => {
        last = id ?? last;
        if (data === '' || isClosed) return;
        const request = typeof open.key === 'symbol' ? undefined : open.key;
        const sent =
          this.#resumes && id !== undefined
            ? JSON.stringify(withEvent(JSON.parse(data) as JsonObject, id, request))
            : data;
        keepsUp = this.#parts.end.send(sent) && keepsUp;
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
      end: (isUnfinished = false) => {
        close();
        const { key } = open;
        // Nobody else comes back for it: its client sees one pipe, which is open.
        if (isUnfinished && (key === STANDING || last !== undefined)) this.#followLater(key, last);
      },
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

  #fail(id: string | number | null, code: number, message: string): void {
    this.#send({ jsonrpc: '2.0', id, error: { code, message } });
  }

  /** Over HTTP the exchange says whose response it is; here its id alone does. */
  #respond(message: unknown, key: Key): void {
    this.#send(isObject(message) && message.id === null ? { ...message, id: key ?? null } : message);
  }

  #send(message: unknown): void {
    if (!this.#isOver) this.#parts.end.send(JSON.stringify(message));
  }
}

/**
 * The id of a request in a text that is not parsed, as clients write it: before its params, or after all objects in them.
 * A client that writes it elsewhere gets a refusal without an id.
 */
function idIn(text: string): Key {
  if (!/^\s*\{/.test(text)) return undefined;
  const own = text.slice(0, text.indexOf('"params"')) + text.slice(text.lastIndexOf('}', text.length - 2));
  const id = parsed(/"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)/.exec(own)?.[1]);
  return isRequestId(id) ? id : undefined;
}

function parsed(body: string | undefined): unknown {
  if (body === undefined || body === '') return undefined;
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

// --- resuming ---

/**
 * How a client resumes its session on another pipe. It asks for that in the `_meta` of its `initialize`; then each
 * message of a stream carries the stream's position, and after a break the client sends `RESUME`, its requests that
 * have no response yet, and its answers again. `docs/websocket.md` specifies it.
 */

const OWN: ReadonlySet<string> = new Set([SESSION_META, VERSION_META, EVENT_META, REQUEST_META]);

function metaOf(message: JsonObject): JsonObject {
  const { params } = message;
  return objectOf(objectOf(params)._meta);
}

/** @returns undefined when it names no session */
function sessionOf(
  message: JsonObject,
):
  | { readonly session: string; readonly version: string | undefined; readonly standing: string | undefined }
  | undefined {
  const { [SESSION_META]: session, [VERSION_META]: version, [EVENT_META]: standing } = metaOf(message);
  if (typeof session !== 'string') return undefined;
  return { session, version: textOrNone(version), standing: textOrNone(standing) };
}

function textOrNone(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Removes the members that are for this package's two ends alone, before a server sees the message. */
function withoutResume(message: JsonObject): JsonObject {
  const meta = metaOf(message);
  if (!Object.keys(meta).some((key) => OWN.has(key))) return message;
  const rest = Object.fromEntries(Object.entries(meta).filter(([key]) => !OWN.has(key)));
  const { _meta: _own, ...params } = message.params as JsonObject;
  return { ...message, params: { ...params, ...(Object.keys(rest).length > 0 && { _meta: rest }) } };
}

/** Adds the stream's position to a message. A response gets none: it ends its stream. */
function withEvent(message: JsonObject, event: string, request: string | number | undefined): JsonObject {
  if (typeof message.method !== 'string') return message;
  const params = objectOf(message.params);
  const _meta = {
    ...objectOf(params._meta),
    [EVENT_META]: event,
    ...defined({ [REQUEST_META]: request }),
  };
  return { ...message, params: { ...params, _meta } };
}

/** The response to `initialize` names the session. */
function withSession(message: JsonObject, session: string | undefined): JsonObject {
  const { result } = message;
  if (session === undefined || !isObject(result) || typeof result.protocolVersion !== 'string')
    return message;
  return {
    ...message,
    result: { ...result, _meta: { ...objectOf(result._meta), [SESSION_META]: session } },
  };
}
