/** Clients of workspace-sse by hand: the wire, byte for byte. */
import { expect } from 'vitest';
import type { Rpc } from './clients.ts';

export interface WireEvent {
  readonly event: string;
  readonly id: string | undefined;
  readonly message: Rpc & { readonly params?: Readonly<Record<string, unknown>> };
}

/** The messages of a stream, or of a body. */
export class Body {
  readonly status: number;
  readonly headers: Headers;
  text = '';
  over = false;
  readonly #abort: AbortController;
  readonly #events: WireEvent[] = [];
  /** The length of the text whose events are known. */
  #parsed = 0;

  constructor(response: Response, abort: AbortController) {
    this.status = response.status;
    this.headers = response.headers;
    this.#abort = abort;
    void this.#read(response.body?.pipeThrough(new TextDecoderStream()).getReader());
  }

  /** Each is parsed once: tests poll, in the process that serves them. */
  get events(): readonly WireEvent[] {
    const end = this.text.lastIndexOf('\n\n');
    if (end < this.#parsed) return this.#events;
    const blocks = this.text.slice(this.#parsed, end).split('\n\n');
    this.#parsed = end + 2;
    for (const block of blocks) {
      const field = (name: string): string | undefined => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1];
      const data = field('data');
      if (data !== undefined)
        this.#events.push({ event: field('event') ?? 'message', id: field('id'), message: JSON.parse(data) });
    }
    return this.#events;
  }

  /** The JSON body of a reply that is not a stream. */
  get json(): Rpc {
    return JSON.parse(this.text) as Rpc;
  }

  /** The id of the last complete event, which a returning client sends: one that was cut off is sent again. */
  get last(): string {
    const complete = this.text.slice(0, this.text.lastIndexOf('\n\n') + 1);
    return [...complete.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? '';
  }

  get stream(): string {
    return this.headers.get('mcp-stream-id') ?? '';
  }

  responses(): Rpc[] {
    return this.events.filter(({ event }) => event === 'response').map(({ message }) => message);
  }

  async next(wanted: (event: WireEvent) => boolean, timeout = 10_000): Promise<WireEvent> {
    await expect.poll(() => this.events.some(wanted), { timeout, interval: 10 }).toBe(true);
    return this.events.find(wanted) as WireEvent;
  }

  response(id: string | number, timeout = 10_000): Promise<WireEvent> {
    return this.next(({ event, message }) => event === 'response' && message.id === id, timeout);
  }

  lifecycle(method: string): Promise<WireEvent> {
    return this.next(({ event, message }) => event === 'lifecycle' && message.method === method);
  }

  /** An ask whose message is `<field>?`. */
  ask(field: string, timeout = 10_000): Promise<WireEvent> {
    return this.next(({ message }) => message.params?.message === `${field}?`, timeout);
  }

  async end(): Promise<this> {
    await expect.poll(() => this.over, { timeout: 60_000, interval: 10 }).toBe(true);
    return this;
  }

  /** The client goes away. */
  async cancel(): Promise<void> {
    this.#abort.abort();
    await this.end();
  }

  async #read(reader: ReadableStreamDefaultReader<string> | undefined): Promise<void> {
    try {
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
        if (done) break;
        this.text += value;
      }
    } catch {
      // Its process was killed, or its client went away.
    }
    this.over = true;
  }
}

export interface WireOptions {
  /** The caller, by `Authorization: Bearer`. */
  readonly as?: string;
  readonly accept?: string;
  /** `Mcp-Stream-Id`. */
  readonly stream?: string;
  readonly last?: string;
  readonly agent?: string;
}

const EVENTS = 'text/event-stream';

function headersOf({ as, stream, last, agent }: WireOptions): Record<string, string> {
  return {
    ...(as !== undefined && { authorization: `Bearer ${as}` }),
    ...(stream !== undefined && { 'mcp-stream-id': stream }),
    ...(last !== undefined && { 'last-event-id': last }),
    ...(agent !== undefined && { 'user-agent': agent }),
  };
}

export async function get(url: string, options: WireOptions = {}): Promise<Body> {
  const abort = new AbortController();
  const headers = { accept: options.accept ?? EVENTS, ...headersOf(options) };
  return new Body(await fetch(url, { headers, signal: abort.signal }), abort);
}

/** A body as it is. */
export async function postText(url: string, body: string, options: WireOptions = {}): Promise<Body> {
  const abort = new AbortController();
  const { accept = EVENTS } = options;
  const headers = { 'content-type': 'application/json', accept, ...headersOf(options) };
  return new Body(await fetch(url, { method: 'POST', headers, body, signal: abort.signal }), abort);
}

export function post(url: string, message: object, options: WireOptions = {}): Promise<Body> {
  return postText(url, JSON.stringify({ jsonrpc: '2.0', ...message }), options);
}

export function call(id: string | number, name: string, args: object = {}): object {
  return { id, method: 'tools/call', params: { name, arguments: args } };
}

export function initialize(id: string | number, capabilities: object): object {
  const clientInfo = { name: 'by hand', version: '1' };
  return { id, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities, clientInfo } };
}

/** The answer to an ask for one field. */
export function answer({ message }: WireEvent, field: string): object {
  return { id: message.id, result: { action: 'accept', content: { [field]: `its ${field}` } } };
}

export function textOf({ message }: WireEvent): string {
  return message.result?.content?.[0]?.text ?? '';
}
