/** Streams that last longer than their calls: a client that comes back, at any process, gets each message once. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/store.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { some } from '../short.ts';
import { CAPABILITIES, messagesIn, type Rpc } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { SQLITE } from './services.ts';

const CALLS = 4;

/** A stream as its client has it, over all its connections. */
class Client {
  readonly got: Rpc[] = [];
  readonly #roots: readonly string[];
  readonly #path: string;
  readonly #post: (root: string) => string;
  #headers: Record<string, string> = {};
  #endpoint = '';
  #last = '';
  #gone = new AbortController();

  constructor(roots: readonly string[], path: string) {
    this.#roots = roots;
    this.#path = path;
    this.#post = (root) => `${root}${this.#endpoint || path}`;
  }

  /** The first time a new stream; then the same from the last event on. */
  async connect(at: number): Promise<void> {
    this.#gone.abort();
    this.#gone = new AbortController();
    const headers = { accept: 'text/event-stream', ...(this.#last && { 'last-event-id': this.#last }) };
    const response = await fetch(`${this.#roots[at]}${this.#path}`, { headers, signal: this.#gone.signal });
    expect(response.status).toBe(200);
    const stream = response.headers.get('mcp-stream-id');
    if (stream !== null) this.#headers = { 'mcp-stream-id': stream };
    const { signal } = this.#gone;
    // As an EventSource does it, where an older connection was named in a call's log after this one.
    void this.#read(response, signal)
      .then(() => (signal.aborted ? undefined : this.connect(at)))
      .catch(() => {});
    await expect.poll(() => this.#last).not.toBe('');
  }

  async post(at: number, message: object): Promise<void> {
    const response = await fetch(this.#post(this.#roots[at] ?? ''), {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream', ...this.#headers },
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    });
    // A workspace's GET is found by a hint, without which the reply is the POST's own body.
    expect(response.status).toBe(response.headers.has('content-type') && this.#path !== '/sse' ? 200 : 202);
    if (response.status === 200) void this.#read(response, new AbortController().signal, false);
    else await response.text();
  }

  async #read(response: Response, gone: AbortSignal, isStream = true): Promise<void> {
    let text = '';
    try {
      for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        text += chunk;
        const end = text.lastIndexOf('\n\n') + 2;
        // What comes after the client went away it never had.
        if (end === 1 || gone.aborted) continue;
        const events = text.slice(0, end);
        text = text.slice(end);
        if (isStream) this.#last = [...events.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? this.#last;
        this.#endpoint ||= /^event: endpoint\n(?:.+\n)*data: (.+)$/m.exec(events)?.[1] ?? '';
        this.got.push(...messagesIn(events).filter(({ id }) => id !== undefined));
      }
    } catch {
      // It was left.
    }
  }

  async next(wanted: (message: Rpc) => boolean): Promise<void> {
    await expect.poll(() => this.got.some(wanted)).toBe(true);
  }

  /** Its session begins, on a wire that has them. */
  async begin(at: number): Promise<void> {
    if (this.#path !== '/sse') return;
    const clientInfo = { name: 'lasting', version: '1' };
    const params = { protocolVersion: '2024-11-05', capabilities: CAPABILITIES, clientInfo };
    await this.post(at, { id: 'begin', method: 'initialize', params });
    await this.next(({ id }) => id === 'begin');
  }

  /** Its connection breaks. */
  close(): void {
    this.#gone.abort();
  }
}

const wires = [
  { name: 'HTTP+SSE', path: '/sse' },
  { name: 'a GET of a workspace', path: '/mcp/here' },
];

describe.each(some(wires))('$name', ({ path }) => {
  const served: Served[] = [];
  let roots: string[] = [];
  beforeAll(async () => {
    const place = SQLITE.url();
    for (let nth = 0; nth < 2; nth += 1)
      served.push(
        await serveHere(() => buildServer(() => {}), {
          store: await openStore(place),
          secrets: [SECRET],
          limits: { drain: 300 },
          // Without a relay a process looks for what others wrote.
          ...tuned({ streamPoll: 50 }),
          revisions: ['*', { name: 'workspace-sse', capabilities: CAPABILITIES }],
        }),
      );
    roots = served.map(({ url }) => new URL(url).origin);
  });
  afterAll(() => Promise.all(served.map((one) => one.close())));

  it('tells of a call that expired while its client was away, and goes on with the others', async () => {
    const ttl = 4_000;
    const brief = await serveHere(() => buildServer(() => {}), {
      store: await openStore(SQLITE.url()),
      secrets: [SECRET],
      ttl,
      revisions: ['*', { name: 'workspace-sse', capabilities: CAPABILITIES }],
    });
    const client = new Client([new URL(brief.url).origin], path);
    await client.connect(0);
    await client.begin(0);
    const call = (id: string) =>
      client.post(0, { id, method: 'tools/call', params: { name: 'one', arguments: {} } });
    const asked = () => client.got.filter(({ method }) => method === 'elicitation/create');
    await call('first');
    await expect.poll(() => asked().length).toBe(1);
    const expired = sleep(ttl + 100);
    await sleep(ttl - 1_200);
    await call('second');
    await expect.poll(() => asked().length).toBe(2);
    client.close();
    await expired;
    await client.connect(0);
    await client.post(0, { id: asked()[1]?.id, result: { action: 'accept', content: { name: 'x' } } });
    for (const id of ['first', 'second']) await client.next((message) => message.id === id);
    const [first, second] = ['first', 'second'].map((one) => client.got.find(({ id }) => id === one));
    expect(first?.error).toMatchObject({ code: -32000, message: expect.stringContaining('expired') });
    expect(second?.result).toMatchObject({ content: [{ type: 'text' }] });
    client.close();
    await brief.close();
  });

  /** One act after the other: a request, an answer to an ask that came, or another connection. */
  const act = fc.record({
    what: fc.constantFrom('call', 'answer', 'connect'),
    at: fc.constantFrom(0, 1),
  });

  it('gives each ask and each response once, wherever its client comes back, and whatever is open', async () => {
    const property = fc.asyncProperty(fc.array(act, { minLength: 8, maxLength: 20 }), async (acts) => {
      const client = new Client(roots, path);
      await client.connect(0);
      await client.begin(1);
      const asked = (): Rpc[] => client.got.filter(({ method }) => method === 'elicitation/create');
      let calls = 0;
      let answers = 0;
      const call = (at: number): Promise<void> => {
        calls += 1;
        return client.post(at, { id: calls, method: 'tools/call', params: { name: 'one', arguments: {} } });
      };
      const answer = async (at: number): Promise<void> => {
        const ask = asked()[answers];
        if (ask === undefined) return;
        answers += 1;
        await client.post(at, { id: ask.id, result: { action: 'accept', content: { name: 'x' } } });
      };
      for (const { what, at } of acts) {
        if (what === 'connect') await client.connect(at);
        else if (what === 'answer') await answer(at);
        else if (calls < CALLS) await call(at);
      }
      if (calls === 0) await call(0);
      await expect.poll(() => asked().length).toBe(calls);
      while (answers < calls) await answer(answers % 2);
      for (let id = 1; id <= calls; id += 1) await client.next((message) => message.id === id);
      // Whoever has all of it gets nothing more.
      const all = client.got.length;
      await client.connect(1);
      await client.post(0, { id: 'last', method: 'tools/list' });
      await client.next(({ id }) => id === 'last');
      expect(client.got.length).toBe(all + 1);
      const ids = client.got.map(({ id }) => id);
      expect(ids.length).toBe(new Set(ids).size);
      client.close();
    });
    await fc.assert(property, { numRuns: 8, endOnFailure: true });
  });
});
