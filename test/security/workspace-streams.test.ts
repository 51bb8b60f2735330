/** Streams of `workspace-sse` that strangers open in any number: they take the places of strangers' streams alone. */
import { setImmediate as soon } from 'node:timers/promises';
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { WorkspaceChannel } from '../../compat/workspace-sse/channels.ts';
import type { Started } from '../../src/call/engine.ts';
import { tuned } from '../../src/call/limits.ts';
import type { Services } from '../../src/handler/services.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { sharedId } from '../../src/stream/event-id.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { answer, type Body, call, get, post, textOf } from '../e2e/workspace-wire.ts';
import { buildServer } from '../fixtures/asking-server.ts';

let served: Served;
const streams: Body[] = [];
afterEach(async () => {
  await Promise.all(streams.splice(0).map((stream) => stream.cancel()));
  await served.close();
});

const FEW = tuned({ sessions: 6, callerSessions: 3, anonymousSessions: 3 });

async function serve(options: AwaitOptions = {}): Promise<string> {
  served = await serveHere(() => buildServer(() => {}), {
    secrets: [SECRET],
    revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
    ...FEW,
    ...options,
  });
  return `${served.url}/team`;
}

async function opened(...args: Parameters<typeof get>): Promise<Body> {
  const stream = await get(...args);
  streams.push(stream);
  return stream;
}

/** A call that waits for its user, and whose client's connection has broken. */
async function waiting(url: string, as?: string) {
  const who = as === undefined ? {} : { as };
  const stream = await opened(url, who);
  expect((await post(url, call(1, 'one'), who)).status).toBe(202);
  const ask = await stream.ask('name');
  await stream.cancel();
  return {
    answered: async () => (await post(url, answer(ask, 'name'), who)).status,
    async continued(): Promise<string> {
      const again = await opened(url, { ...who, last: stream.last });
      expect(await this.answered()).toBe(202);
      return textOf(await again.response(1));
    },
  };
}

/** Opens a stream and leaves it, so many times, one after the other. */
async function pass(url: string, times: number, as?: string): Promise<number[]> {
  const statuses: number[] = [];
  for (let nth = 0; nth < times; nth += 1) {
    const stream = await get(url, as === undefined ? {} : { as });
    statuses.push(stream.status);
    await stream.cancel();
    // Until its place is free.
    await soon();
  }
  return statuses;
}

describe('a stream whose connection broke, with the store in memory', () => {
  it('stays, and its call, however many streams strangers open', async () => {
    const url = await serve();
    const ann = await waiting(url, 'ann');
    expect(await pass(url, 20)).toContain(200);
    expect(await ann.continued()).toBe('Hello its name');
  });

  it('stays, and its call, however many streams another known caller opens', async () => {
    const url = await serve();
    const ann = await waiting(url, 'ann');
    expect(await pass(url, 20, 'bob')).toContain(200);
    expect(await ann.continued()).toBe('Hello its name');
  });

  it('makes room for newer ones of its own caller', async () => {
    const url = await serve();
    const ann = await waiting(url, 'ann');
    await pass(url, 6, 'ann');
    expect(await ann.answered()).toBe(400);
  });
});

describe('a GET without room', () => {
  it('makes no stream, and stores nothing', async () => {
    const kept = new Map();
    const url = await serve({ store: new Keyv({ store: kept }) });
    for (let nth = 0; nth < 3; nth += 1) expect((await opened(url)).status).toBe(200);
    const before = kept.size;
    const refused = await Promise.all(Array.from({ length: 10 }, () => get(url)));
    expect(new Set(refused.map(({ status }) => status))).toEqual(new Set([503]));
    expect(kept.size).toBe(before);
    expect((await opened(url, { as: 'ann' })).status).toBe(200);
  });

  it('is refused too where many come at once', async () => {
    const url = await serve();
    const all = await Promise.all(Array.from({ length: 10 }, () => opened(url)));
    expect(all.filter(({ status }) => status === 200)).toHaveLength(3);
  });
});

describe('ids of requests on a stream, with the store in memory', () => {
  it('are refused again, while their call runs or they are among the last thousand', async () => {
    const services = { now: () => 0 } as unknown as Services;
    const channel = new WorkspaceChannel(services, { workspace: 'team' }, sharedId(1));
    channel.calls.set('runs', {} as Started);
    for (let nth = 0; nth < 1_000; nth += 1) expect(await channel.reserve(nth)).toBe(true);
    for (const used of ['runs', 0, 999]) expect(await channel.reserve(used)).toBe(false);
    expect(await channel.reserve('one more')).toBe(true);
    // Each stream of a stranger would keep more.
    expect(await channel.reserve(0)).toBe(true);
  });
});
