/** Nothing secret in a log line, an error or a record: answers, arguments, credentials, tokens, secrets. */
import Keyv from 'keyv';
import { afterEach, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import type { AwaitOptions, HostFactory } from '../../src/index.ts';
import { memoryRelay } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { changingServer } from '../fixtures/changing-server.ts';
import { flakyStore, LEAK } from '../fixtures/flaky-store.ts';
import { accept, legacy, post, type RawReply } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';

const ARGUMENT = 'an-argument-of-ann';
const ANSWER = 'an-answer-of-ann';
const BEARER = 'secret-of-ann';
const headers = { authorization: 'Bearer ann', cookie: 'sid=a-cookie-of-ann' };

const open: Served[] = [];
const replies: RawReply[] = [];
afterEach(() => Promise.all(open.splice(0).map((served) => served.close())));

async function serve(factory: HostFactory, options: AwaitOptions = {}): Promise<Served> {
  const served = await serveHere(factory, { secrets: [SECRET], limits: { frames: 0 }, ...options });
  open.push(served);
  return served;
}

const send = async (url: string, call: object): Promise<RawReply> => {
  const reply = await post(url, { tool: 'echo', args: { word: ARGUMENT }, headers, ...call });
  replies.push(reply);
  return reply;
};
const answer = ({ state, keys }: RawReply, value: unknown = ANSWER) => ({
  state,
  responses: accept(keys, { name: value, city: value, nights: value }),
});
/** The log names the failure, and contains nothing that the caller sent, nor any credential. */
const tellsNothing = (): void => {
  const told = open.map(({ log }) => log.text).join('\n');
  const errors = replies.map(({ message }) => JSON.stringify(message.error ?? '')).join('\n');
  for (const secret of [ARGUMENT, ANSWER, BEARER, 'a-cookie-of-ann', SECRET]) {
    expect(told).not.toContain(secret);
    expect(errors).not.toContain(secret);
  }
  for (const { state } of replies) if (state !== '') expect(told).not.toContain(state);
  for (const text of [told, errors]) expect(text).not.toContain('hunter2');
};

it('in a call that goes well, also of a session and over a relay', async () => {
  const store = new Keyv();
  const relay = memoryRelay();
  const patient = tuned({ handoffWait: 5_000 });
  const build = () => buildServer(() => {});
  const [one, other] = [
    await serve(build, { store, relay, limits: {}, ...patient }),
    await serve(build, { store, relay, limits: {}, ...patient }),
  ];
  await send(other.url, answer(await send(one.url, {})));
  const client = await legacy(one.url);
  await client.tool('echo', { word: ARGUMENT });
  await client.close();
  expect(other.handler.counters.handedOff).toBe(1);
  tellsNothing();
});

it('when tokens, answers and callers are not what they should be', async () => {
  const { url, log } = await serve(() => buildServer(() => {}));
  const first = await send(url, {});
  await send(url, { ...answer(first), state: `${first.state}x` });
  await send(url, { ...answer(first), args: { word: 'another' } });
  await send(url, { ...answer(first), headers: {} });
  await send(url, { state: first.state, responses: { [first.keys[0] ?? '']: { action: ANSWER } } });
  await send(url, answer(first, { nested: ANSWER }));
  expect(log.lines.length).toBeGreaterThan(3);
  tellsNothing();
});

it('when a tool takes another way than its journal records', async () => {
  const store = new Keyv();
  const first = await serve(() => changingServer('first', () => {}), { store });
  const second = await serve(() => changingServer('renamed-step', () => {}), { store });
  const asked = await send(first.url, { tool: 'book' });
  const [city = ''] = asked.keys;
  const half = { state: asked.state, responses: accept([city], { city: ANSWER }), tool: 'book' };
  await send(second.url, half);
  expect(second.log.text).toContain("the tool attempts step 'hold'");
  tellsNothing();
});

it('when the store fails, whose errors name its address and its password', async () => {
  const flaky = flakyStore();
  const limits = { frames: 0, lease: 200 };
  const { url, log } = await serve(() => buildServer(() => {}), { store: flaky.store, limits });
  const told = (): number => log.text.split('redis://***@10.0.0.7:6379').length;
  for (const fail of ['read', 'claimed', 'ended', 'all'] as const) {
    const first = await send(url, {});
    const before = told();
    flaky.fail = fail;
    const reply = send(url, answer(first));
    await expect.poll(told, { timeout: 30_000 }).toBeGreaterThan(before);
    // The last one's process leaves, and says so.
    if (fail === 'all') await open.at(-1)?.close();
    flaky.fail = undefined;
    expect((await reply).text).not.toContain(LEAK);
  }
  expect(replies.at(-1)?.message).toHaveProperty('error');
  tellsNothing();
});

it('in what stands in the store: no header, no cookie, no bearer token', async () => {
  const records = new Map<string, string>();
  const { url } = await serve(() => buildServer(() => {}), { store: new Keyv({ store: records }) });
  await send(url, answer(await send(url, {})));
  const text = JSON.stringify([...records]);
  expect(text).toContain(ANSWER);
  for (const secret of [BEARER, 'a-cookie-of-ann', 'Bearer']) expect(text).not.toContain(secret);
});
