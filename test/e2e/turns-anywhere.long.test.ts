/** SEP-1858 where processes die, shut down, and get requests for calls that others run. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { memoryRelay } from '../../src/index.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { answer, asks, begin, call, type Session } from './anywhere.ts';
import {
  effectsIn,
  Fleet,
  SECRET,
  type Served,
  type Spawned,
  scratch,
  serveHere,
  spawnServers,
} from './harness.ts';
import type { Reader } from './reader.ts';
import { REDIS, REDIS_URL, SQLITE } from './services.ts';

const DRAFT = 'DRAFT-SEP-1858';
const KINDS = [
  {
    name: `${REDIS.name}, with a relay`,
    down: REDIS.down,
    args: () => ['--store', REDIS_URL, '--relay', REDIS_URL],
  },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
];

let servers: Spawned[] = [];
let served: Served | undefined;
afterEach(async () => {
  await served?.close();
  served = undefined;
});

const open = (at: readonly { readonly url: string }[]): Promise<Session> =>
  begin(at, { elicitation: {} }, undefined, DRAFT);

/** Answers the one ask of a turn that is over: the next turn. */
async function goOn(
  session: Session,
  turn: Reader,
  to: number,
  accept?: string,
  field = 'name',
): Promise<Reader> {
  await expect.poll(() => turn.over).toBe(true);
  const ask = turn.messages.find(asks(field));
  if (ask === undefined) throw new Error(`nothing is asked: ${turn.text}`);
  const body = [{ jsonrpc: '2.0', ...answer(ask, field) }];
  return session.post(to, body, { 'last-event-id': turn.last, ...(accept !== undefined && { accept }) });
}

const says = (data: string) => (message: { method?: string; params?: unknown }) =>
  message.method === 'notifications/message' && JSON.stringify(message.params).includes(data);

for (const kind of KINDS) {
  describe.skipIf(kind.down)(`turns of SEP-1858 on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    const fleet = new Fleet('asking-server.ts', 2, { args: kind.args(), env: { EFFECTS: effects } });
    afterAll(() => fleet.down());
    const start = async (): Promise<Session> => {
      servers = await fleet.up();
      return open(servers);
    };

    it.each([
      ['first', 'lingers'],
      ['second', 'lingers'],
      ['second', 'asks-first'],
    ])('go on by GET in another process when theirs is killed: the %s of %s', async (nth, tool) => {
      const session = await start();
      const first = await session.post(0, call(tool));
      const isFirst = nth === 'first';
      const broken = isFirst ? first : await goOn(session, first, 0);
      await broken.next(says(isFirst ? 'before' : 'between'));
      await servers[0]?.kill();
      await expect.poll(() => broken.over).toBe(true);
      const again = await session.get(1, broken.last);
      if (isFirst) await again.next(asks('name'));
      const done = isFirst ? await goOn(session, again, 1) : again;
      expect((await done.next(({ id }) => id === 7)).result?.content?.[0]?.text).toBe('its name');
      await expect.poll(() => done.over).toBe(true);
    });

    it.each([0, 1])('hear of a cancellation in the second turn, from process %i', async (to) => {
      const session = await start();
      const before = effectsIn(effects).length;
      const first = await session.post(0, call('cancelled'));
      const second = goOn(session, first, 0);
      await new Promise((resolve) => setTimeout(resolve, 500));
      await session.post(to, { method: 'notifications/cancelled', params: { requestId: 7 } });
      expect((await second).status).toBe(202);
      await expect.poll(() => effectsIn(effects).slice(before)).toEqual(['aborted']);
    });

    it.each([0, 1])('end with their session, which process %i is told to end', async (to) => {
      const session = await start();
      const before = effectsIn(effects).length;
      const second = goOn(session, await session.post(0, call('cancelled')), 0);
      await new Promise((resolve) => setTimeout(resolve, 500));
      const ended = await fetch(servers[to]?.url ?? '', { method: 'DELETE', headers: session.headers });
      expect(ended.status).toBe(200);
      expect((await second).status).toBe(202);
      await expect.poll(() => effectsIn(effects).slice(before)).toEqual(['aborted']);
    });

    it('have all notifications of a turn that goes on in the process of its frame', async () => {
      const session = await start();
      for (let time = 0; time < 5; time += 1) {
        const first = await session.post(0, call('lingers'));
        const second = await goOn(session, first, 1);
        await second.next(({ id }) => id === 7);
        expect(second.text).toContain('between');
      }
    });

    it('are one stream for a client that sends its answers again, after a notification', async () => {
      const session = await start();
      const first = await session.post(0, call('lingers'));
      const [one, other] = [await goOn(session, first, 0), await goOn(session, first, 1)];
      for (const turn of [one, other]) await expect.poll(() => turn.over).toBe(true);
      const late = await goOn(session, first, 1);
      await late.next(({ id }) => id === 7);
      expect(late.messages.some(says('between'))).toBe(true);
    });
  });
}

it('a turn of SEP-1858 ends where the answers before it were sent to two processes', async () => {
  const records = new Map<string, string>();
  const relay = memoryRelay();
  const serve = (): Promise<Served> =>
    serveHere(() => buildServer(() => {}), { store: flakyStore(records).store, relay, secrets: [SECRET] });
  const three = await Promise.all([serve(), serve(), serve()]);
  const session = await open(three);
  const first = await session.post(0, call('stations'));
  await expect.poll(() => first.over).toBe(true);
  await three[0]?.close();
  const once = goOn(session, first, 1);
  await sleep(150);
  const again = goOn(session, first, 2);
  const second = await once;
  await expect.poll(() => second.over).toBe(true);
  // The second request of the turn before may still read its end there.
  const third = await goOn(session, second, 2, undefined, 'city');
  await third.next(asks('street'));
  await again;
  await Promise.all(three.slice(1).map((one) => one.close()));
});

describe('turns of SEP-1858 in one process', () => {
  it('are not lost to other sessions, where few are kept', async () => {
    served = await serveHere(() => buildServer(() => {}), { limits: { sessions: 1 } });
    const session = await open([served]);
    const second = goOn(session, await session.post(0, call('lingers')), 0, 'application/json');
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (let nth = 0; nth < 3; nth += 1) await open([served]);
    const reader = await second;
    await expect.poll(() => reader.over).toBe(true);
    expect(JSON.parse(reader.text).result.content[0].text).toBe('its name');
  });

  it('are given up when it goes away, for the same answers to continue elsewhere', async () => {
    const place = SQLITE.url();
    servers = await spawnServers('asking-server.ts', 2, { args: ['--store', place] });
    const session = await open(servers);
    const first = await session.post(0, call('cancelled'));
    const second = goOn(session, first, 0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    process.kill(servers[0]?.pid ?? 0, 'SIGTERM');
    const put = await second;
    await expect.poll(() => put.over).toBe(true);
    expect([put.status, JSON.parse(put.text).error.code]).toEqual([503, -32000]);
    await servers[1]?.kill();
  });
});
