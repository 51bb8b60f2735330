/** What the option `ask` costs the store, counted as in `store-commands.long.test.ts`. */
import type Keyv from 'keyv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { PersonAtPage } from '../ask/person.ts';
import { type OwnStore, ownStore } from '../chaos/stores.ts';
import { post, textOf } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { REDIS } from '../e2e/services.ts';
import { commandsOf } from './commands.ts';
import { build, type What } from './served.ts';

/** Calls of the same caller before: what grows with them would be missed on the first. */
const BEFORE = 150;
const CALLS = 5;
const MODERN = '2026-07-28';
const META = 'io.modelcontextprotocol';

describe.skipIf(REDIS.down)('commands of a call whose client cannot be asked, on Redis', () => {
  let redis: OwnStore;
  let store: Keyv;
  let served: Served;
  let counter: Awaited<ReturnType<typeof commandsOf>>;
  let nth = 0;

  beforeAll(async () => {
    redis = await ownStore('redis');
    counter = await commandsOf(redis.url);
    store = await openStore(redis.url);
    served = await serveHere(build, {
      store,
      secrets: [SECRET],
      ask: {
        page: 'http://127.0.0.1:1/ask',
        authorize: (request) => request.headers.get('x-person') ?? undefined,
        person: (authInfo) => authInfo?.clientId as string | undefined,
      },
    });
  });
  afterAll(async () => {
    await served?.close();
    await store?.disconnect();
    await counter?.close();
    redis?.remove();
  });

  async function call(name: What, args: object): Promise<string> {
    const response = await fetch(served.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: 'Bearer ann',
        'mcp-protocol-version': MODERN,
        'mcp-method': 'tools/call',
        'mcp-name': name,
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: {
          name,
          arguments: args,
          _meta: {
            [`${META}/protocolVersion`]: MODERN,
            [`${META}/clientInfo`]: { name: 'host', version: '1' },
            [`${META}/clientCapabilities`]: {},
          },
        },
      }),
    });
    return response.text();
  }

  async function answer(link: string): Promise<void> {
    expect((await new PersonAtPage().answer(served.url, link, {})).status).toBe(303);
  }

  /** One call, from its question to its outcome. */
  async function round() {
    nth += 1;
    const args = { nth };
    let told = '';
    const asked = await counter.costOf(async () => {
      told = await call('ask', args);
    });
    const link = /http:[^\s"\\]+\/ask\/[^\s"\\]+/.exec(told)?.[0] ?? '';
    const answered = await counter.costOf(() => answer(link));
    let outcome = '';
    const continued = await counter.costOf(async () => {
      outcome = await call('ask', args);
    });
    expect(outcome).toContain('undefined');
    return { asked, answered, continued };
  }

  it('asks, is answered on the page, and goes on: at most 14, 13 and 12', async () => {
    for (let before = 0; before < BEFORE; before += 1) await round();
    const each: Awaited<ReturnType<typeof round>>[] = [];
    for (let at = 0; at < CALLS; at += 1) each.push(await round());
    const least = (of: 'asked' | 'answered' | 'continued'): number =>
      Math.min(...each.map((costs) => costs[of].commands));
    const counted = JSON.stringify(each);
    // The rows of equal calls, the call, its step to the page, the person's list, and what says who answers.
    expect(least('asked'), counted).toBeLessThanOrEqual(14);
    // The form and its answer: each reads the call's log, and who may answer it.
    expect(least('answered'), counted).toBeLessThanOrEqual(13);
    // The rows, the log, the answer; the claim, the end, and when the outcome was sent.
    expect(least('continued'), counted).toBeLessThanOrEqual(12);
  });

  /** The least of some calls to a client that answers at once, or after more than a second. */
  async function answeredByClient(pause = 0): Promise<number> {
    const costs: number[] = [];
    for (let at = 0; at < CALLS; at += 1) {
      nth += 1;
      const sent = {
        tool: 'ask',
        args: { nth },
        capabilities: { elicitation: { form: {} } },
        headers: { authorization: 'Bearer ann' },
      };
      const { commands } = await counter.costOf(async () => {
        const { state, keys } = await post(served.url, sent);
        await new Promise((resolve) => setTimeout(resolve, pause));
        const given = { action: 'accept', content: { name: 'Ann' } };
        const responses = Object.fromEntries(keys.map((key) => [key, given]));
        expect(textOf(await post(served.url, { ...sent, state, responses }))).toBe('Ann');
      });
      costs.push(commands);
    }
    return Math.min(...costs);
  }

  it('asks its client: at most 27, and 17 once that is proven', async () => {
    expect(await answeredByClient()).toBeLessThanOrEqual(27);
    await answeredByClient(1_100);
    expect(await answeredByClient()).toBeLessThanOrEqual(17);
  });

  it('never asks: at most 2 in one round trip, which are the rows of equal calls', async () => {
    await call('plain', {});
    const costs = [];
    for (let at = 0; at < CALLS; at += 1) costs.push(await counter.costOf(() => call('plain', { at })));
    const counted = JSON.stringify(costs);
    expect(Math.min(...costs.map(({ commands }) => commands)), counted).toBeLessThanOrEqual(2);
    expect(Math.min(...costs.map(({ trips }) => trips)), counted).toBeLessThanOrEqual(1);
  });
});
