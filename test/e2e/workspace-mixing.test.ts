/** workspace-sse: clients that use the same ids at once, and what somebody else's stream, ask and id are good for. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import type { AwaitOptions } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { some } from '../short.ts';
import { type Served, serveHere } from './harness.ts';
import { answer, type Body, call, get, post, textOf, type WireOptions } from './workspace-wire.ts';

const open: Served[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

async function serve(options: AwaitOptions = {}, build = () => buildServer(() => {})): Promise<string> {
  const served = await serveHere(build, {
    revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
    limits: { drain: 50 },
    ...options,
  });
  open.push(served);
  return `${served.url}/acme`;
}

const ping = { id: '1', method: 'ping' };

/** What `echo` says to this client: its word, and the answer to its ask. */
const said = (word: string): string => `${word} ${word}`;
const wordOf = (ask: Parameters<typeof answer>[0], word: string): object => ({
  id: ask.message.id,
  result: { action: 'accept', content: { name: word } },
});

describe('two clients that both use id "1"', () => {
  it('as two callers, each with a GET, have each their own response', async () => {
    const url = await serve();
    const streams = await Promise.all(['ann', 'bob'].map((as) => get(url, { as })));
    for (const as of ['ann', 'bob']) {
      expect((await post(url, call('1', 'echo', { word: as }), { as })).status).toBe(202);
    }
    for (const [nth, as] of ['ann', 'bob'].entries()) {
      const stream = streams[nth] as Body;
      await post(url, wordOf(await stream.ask('name'), as), { as });
      expect(textOf(await stream.response('1'))).toBe(said(as));
      expect(stream.responses()).toHaveLength(1);
    }
  });

  it('as one caller in two workspaces', async () => {
    const url = await serve();
    const other = url.replace('acme', 'other');
    const [here, there] = [await get(url, { as: 'ann' }), await get(other, { as: 'ann' })];
    await post(url, call('1', 'echo', { word: 'here' }), { as: 'ann' });
    await post(other, call('1', 'echo', { word: 'there' }), { as: 'ann' });
    await post(other, wordOf(await there.ask('name'), 'there'), { as: 'ann' });
    await post(url, wordOf(await here.ask('name'), 'here'), { as: 'ann' });
    expect(textOf(await here.response('1'))).toBe(said('here'));
    expect(textOf(await there.response('1'))).toBe(said('there'));
  });

  it('without a GET, anonymous, at the same time', async () => {
    const url = await serve();
    const bodies = await Promise.all(['a', 'b'].map((word) => post(url, call('1', 'echo', { word }))));
    for (const [nth, word] of ['a', 'b'].entries()) {
      const body = bodies[nth] as Body;
      await post(url, wordOf(await body.ask('name'), word));
      expect(textOf(await body.response('1'))).toBe(said(word));
    }
  });

  it('with a GET each and nothing to tell them apart: on the own bodies, or on the stream that is named', async () => {
    const url = await serve();
    for (const as of [{}, { as: 'ann' }]) {
      const streams = [await get(url, as), await get(url, as)];
      for (const stream of streams) await stream.lifecycle('streamOpened');
      const own = await (await post(url, ping, as)).end();
      expect((await own.response('1')).message.result).toEqual({});
      for (const { stream } of streams) {
        expect((await post(url, ping, { ...as, stream })).status).toBe(202);
      }
      for (const stream of streams) {
        await stream.response('1');
        expect(stream.responses()).toHaveLength(1);
        await stream.cancel();
      }
    }
  });

  it('of which one has a GET, and the other is another program', async () => {
    const url = await serve();
    const stream = await get(url, { agent: 'one' });
    await stream.lifecycle('streamOpened');
    const own = await (await post(url, ping, { agent: 'another' })).end();
    expect((await own.response('1')).message.result).toEqual({});
    expect((await post(url, ping, { agent: 'one' })).status).toBe(202);
    await stream.response('1');
    expect(stream.responses()).toHaveLength(1);
  });
});

describe('somebody else', () => {
  const others: readonly (readonly [string, WireOptions, WireOptions])[] = [
    ['another caller', { as: 'ann' }, { as: 'bob' }],
    ['nobody that is known', { as: 'ann' }, {}],
    ['a caller, of an anonymous client', {}, { as: 'ann' }],
  ];

  it.each(others)('cannot answer: %s', async (_name, mine, theirs) => {
    const url = await serve();
    const stream = await get(url, mine);
    await post(url, call('1', 'one'), mine);
    const ask = await stream.ask('name');
    await post(url, answer(ask, 'evil'), theirs);
    await post(url, { id: ask.message.id, error: { code: -1, message: 'no' } }, theirs);
    await post(url, answer(ask, 'name'), mine);
    expect(textOf(await stream.response('1'))).toBe('Hello its name');
  });

  it.each(others)('cannot read, neither a stream nor a body: %s', async (_name, mine, theirs) => {
    const url = await serve();
    const body = await post(url, call('1', 'one'), mine);
    await body.ask('name');
    const stream = await get(url, mine);
    await post(url, { id: 2, method: 'ping' }, mine);
    await stream.response(2);
    for (const { last } of [body, stream]) {
      expect((await get(url, { ...theirs, last })).status).toBe(400);
      expect((await get(url.replace('acme', 'other'), { ...mine, last })).status).toBe(400);
    }
    // A stream that is opened under a foreign id is another one.
    const opened = await get(url, { ...theirs, last: `${stream.stream}_0` });
    await post(url, { id: 3, method: 'ping' }, mine);
    await stream.response(3);
    expect(opened.responses()).toEqual([]);
    expect(stream.over).toBe(false);
  });

  it.each(others)('cannot have its response on the stream it names: %s', async (_name, mine, theirs) => {
    const url = await serve();
    const stream = await get(url, mine);
    await stream.lifecycle('streamOpened');
    const own = await (await post(url, ping, { ...theirs, stream: stream.stream, agent: 'other' })).end();
    await own.response('1');
    expect(stream.responses()).toEqual([]);
  });

  it.each(others)('cannot cancel: %s', async (_name, mine, theirs) => {
    const url = await serve();
    const stream = await get(url, mine);
    await post(url, call('1', 'one'), mine);
    const ask = await stream.ask('name');
    const cancelled = { method: 'notifications/cancelled', params: { requestId: '1' } };
    await post(url, cancelled, { ...theirs, stream: stream.stream, agent: 'other' });
    await post(url, answer(ask, 'name'), mine);
    expect(textOf(await stream.response('1'))).toBe('Hello its name');
  });
});

describe('notifications/cancelled where no GET is open', () => {
  const cancelled = { method: 'notifications/cancelled', params: { requestId: '1' } };

  it('cancels nothing of an anonymous client: there is no telling whose it is', async () => {
    const url = await serve();
    const body = await post(url, call('1', 'one'));
    const ask = await body.ask('name');
    await post(url, cancelled);
    await post(url, answer(ask, 'name'));
    expect(textOf(await body.response('1'))).toBe('Hello its name');
  });

  it('cancels the one request of this id that a caller has in work, and none of two', async () => {
    const url = await serve();
    const ann = { as: 'ann' };
    const [first, second] = [await post(url, call('1', 'one'), ann), await post(url, call('1', 'one'), ann)];
    const ask = await first.ask('name');
    await second.ask('name');
    await post(url, cancelled, { as: 'bob' });
    await post(url, cancelled, ann);
    await post(url, answer(ask, 'name'), ann);
    expect(textOf(await first.response('1'))).toBe('Hello its name');
    await post(url, cancelled, ann);
    expect((await second.end()).responses()).toEqual([]);
  });

  it('cancels a request whose reply is JSON, too', async () => {
    let isBegun = false;
    const build = () => {
      const server = new McpServer({ name: 'waits', version: '1' });
      server.registerTool('waits', {}, async (extra) => {
        isBegun = true;
        await new Promise((resolve) => extra.signal.addEventListener('abort', resolve));
        return { content: [] };
      });
      return server;
    };
    const url = await serve({}, build);
    const reply = fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json',
        authorization: 'Bearer ann',
      },
      body: JSON.stringify({ jsonrpc: '2.0', ...call('1', 'waits') }),
    });
    await expect.poll(() => isBegun).toBe(true);
    await post(url, cancelled, { as: 'ann' });
    expect((await reply).status).toBe(499);
  });
});

it('a client that comes back has its place before anything happens, should it break again', async () => {
  const url = await serve({});
  const who = { as: 'ann' };
  const first = await get(url, who);
  await first.lifecycle('streamOpened');
  await first.cancel();
  const again = await get(url, { ...who, last: first.last });
  await again.lifecycle('streamOpened');
  await again.cancel();
  expect(again.last).toBe(first.last);
});

/** Deterministic, so that what fails once fails again. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const CALLS = 6;

/** One client: it makes its calls under the ids 1 to 6, and keeps all that it was ever sent. */
class Client {
  readonly word: string;
  readonly #url: string;
  readonly #who: WireOptions;
  readonly #listens: boolean;
  readonly #names: boolean;
  readonly #below: (below: number) => number;
  readonly #bodies: Body[] = [];
  readonly #answered = new Set<unknown>();
  #stream: Body | undefined;

  constructor(url: string, nth: number, below: (below: number) => number) {
    this.word = `<${nth}>`;
    this.#url = url;
    this.#below = below;
    const kind = nth % 5;
    // Known, with and without a GET; one caller's windows; anonymous, without a GET and with one.
    this.#who = [
      { as: `c${nth}` },
      { as: `c${nth}` },
      { as: 'carol' },
      { agent: `a${nth}` },
      { agent: 'same' },
    ][kind] as WireOptions;
    this.#listens = kind === 0 || kind === 2 || kind === 4;
    this.#names = kind === 2 || kind === 4;
  }

  get texts(): string[] {
    return this.#bodies.flatMap((body) =>
      body.responses().map(({ result }) => result?.content?.[0]?.text ?? ''),
    );
  }

  get everything(): string {
    return this.#bodies.map(({ text }) => text).join('');
  }

  async run(): Promise<void> {
    if (this.#listens) await this.#listen();
    const ids = Array.from({ length: CALLS }, (_, nth) => nth + 1);
    await Promise.all(ids.map((id) => this.#call(id)));
    for (const body of this.#bodies) if (!body.over) await body.cancel();
  }

  async #listen(last?: string): Promise<void> {
    this.#stream = await get(this.#url, { ...this.#who, ...(last !== undefined && { last }) });
    this.#bodies.push(this.#stream);
    await this.#stream.lifecycle('streamOpened');
  }

  async #call(id: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, this.#below(200)));
    const named = this.#names && this.#stream !== undefined ? { stream: this.#stream.stream } : {};
    const body = await post(this.#url, call(id, 'echo', { word: this.word }), { ...this.#who, ...named });
    if (body.status === 200) this.#bodies.push(body);
    const seen = (): Body[] => (body.status === 200 ? [body] : this.#bodies);
    const isThere = () => {
      this.#answerAll();
      return seen().some((one) => one.responses().some((response) => response.id === id));
    };
    if (this.#below(4) === 0 && body.status === 202) await this.#comeBack();
    const message = `${this.word} has no response to ${id}, which got ${body.status}`;
    await expect.poll(isThere, { timeout: 60_000, interval: 20, message }).toBe(true);
  }

  #coming: Promise<void> = Promise.resolve();

  /** The connection breaks, and the stream goes on. */
  #comeBack(): Promise<void> {
    this.#coming = this.#coming.then(async () => {
      await this.#stream?.cancel();
      await this.#listen(this.#stream?.last);
    });
    return this.#coming;
  }

  #answerAll(): void {
    for (const { message } of this.#bodies.flatMap(({ events }) => events)) {
      if (message.method !== 'elicitation/create' || this.#answered.has(message.id)) continue;
      this.#answered.add(message.id);
      const content = { name: this.word };
      const again = (): void => void this.#answered.delete(message.id);
      // As any client, it sends an answer again that was not accepted.
      post(this.#url, { id: message.id, result: { action: 'accept', content } }, this.#who).then(
        ({ status }) => status === 202 || again(),
        again,
      );
    }
  }
}

it.each(some([1, 2, 3]))(
  'twenty-four clients with the same ids at once read nothing of one another (seed %i)',
  async (seed) => {
    const url = await serve({ rateLimit: false });
    const below = random(seed);
    const clients = Array.from({ length: 24 }, (_, nth) => new Client(url, nth, below));
    await Promise.all(clients.map((client) => client.run()));
    for (const client of clients) {
      expect(client.texts).toEqual(Array(CALLS).fill(said(client.word)));
      for (const { word } of clients) if (word !== client.word) expect(client.everything).not.toContain(word);
    }
  },
);
