/** Messages that a server sends for its session outside of calls, where each request may reach another process. */
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { SHORT, some } from '../short.ts';
import { answer, asks, begin, call, type Session } from './anywhere.ts';
import type { Rpc } from './clients.ts';
import { effectsIn, Fleet, type Spawned, scratch } from './harness.ts';
import type { Reader } from './reader.ts';
import { REDIS, REDIS_URL, SQLITE } from './services.ts';

const KINDS = [
  { name: REDIS.name, down: REDIS.down, args: () => ['--store', REDIS_URL] },
  {
    name: `${REDIS.name}, with a relay`,
    down: REDIS.down,
    args: () => ['--store', REDIS_URL, '--relay', REDIS_URL],
  },
  { name: SQLITE.name, down: false, args: () => ['--store', SQLITE.url()] },
];
const CAPABILITIES = { elicitation: {}, roots: {} };
const CHANGED = 'notifications/tools/list_changed';

let servers: Spawned[] = [];

const asksRoots = ({ method }: Rpc): boolean => method === 'roots/list';
const textOf = async (stream: Reader): Promise<string | undefined> =>
  (await stream.next(({ id }) => id === 7)).result?.content?.[0]?.text;

/** Answers a process's start-up asks, for which its first tool call waits. */
async function startIn(session: Session, to: number, stream: Reader, uri = 'file:///start'): Promise<void> {
  const { id } = await stream.next(asksRoots);
  await session.post(to, { id, result: { roots: [{ uri }] } });
}

/** The text of a tool that is called, with the roots that are asked for on its own stream answered. */
async function say(session: Session, to: number, name: string, uri?: string): Promise<string | undefined> {
  const stream = await session.post(to, call(name));
  const isDone = ({ id }: Rpc): boolean => id === 7;
  const first = await stream.next((message) => isDone(message) || asksRoots(message));
  if (!isDone(first)) await startIn(session, to, stream, uri);
  return textOf(stream);
}

for (const kind of some(KINDS)) {
  describe.skipIf(kind.down)(`three processes on ${kind.name}`, () => {
    const effects = join(scratch(), 'effects');
    const fleet = new Fleet('session-server.ts', 3, { args: kind.args(), env: { EFFECTS: effects } });
    afterAll(() => fleet.down());
    const start = async (): Promise<Session> => {
      servers = await fleet.up();
      return begin(servers, CAPABILITIES);
    };

    it('take the answer to what a server asked outside of calls, wherever it comes in', async () => {
      const session = await start();
      const standing = await session.get(1);
      const ask = await standing.next(asksRoots);
      const result = { roots: [{ uri: 'file:///here' }] };
      expect((await session.post(2, { id: ask.id, result })).status).toBe(202);
      const say = async () => textOf(await session.post(0, call('roots')));
      await expect.poll(say).toBe('file:///here');
    });

    it('hear in each of them that the roots of its client changed', async () => {
      const session = await start();
      const standing = await session.get(1);
      const answered = new Set<unknown>();
      const answerAll = async (uri: string): Promise<void> => {
        for (const { id } of standing.messages.filter(asksRoots)) {
          if (answered.has(id)) continue;
          answered.add(id);
          await session.post(2, { id, result: { roots: [{ uri }] } });
        }
      };
      const knows = (to: number, uri: string): Promise<void> =>
        expect
          .poll(async () => {
            await answerAll(uri);
            return say(session, to, 'roots', uri);
          })
          .toBe(uri);
      for (const to of [0, 1]) await knows(to, 'file:///before');
      // The last process has no instance of this session yet, and gets it all the same.
      expect((await session.post(2, { method: 'notifications/roots/list_changed' })).status).toBe(202);
      for (const to of [0, 1, 2]) await knows(to, 'file:///after');
      // An ask of a busy process may still be on its way; once each has the roots, calls bring no more of them.
      const asked = async (): Promise<number> => {
        await answerAll('file:///after');
        const before = standing.messages.filter(asksRoots).length;
        for (const to of [0, 1, 2]) await session.post(to, call('roots'));
        return standing.messages.filter(asksRoots).length - before;
      };
      await expect.poll(asked).toBe(0);
    });

    it('know no session any more that one of them ended, and end what it has elsewhere', async () => {
      const session = await start();
      const before = effectsIn(effects).length;
      // Each of them has served it.
      const standing = await session.get(1);
      const stream = await session.post(2, call('waits'));
      await startIn(session, 2, stream);
      await stream.next(asks('name'));
      const ended = await fetch(servers[0]?.url ?? '', { method: 'DELETE', headers: session.headers });
      expect(ended.status).toBe(200);
      for (const to of [2, 1, 0]) {
        expect((await session.post(to, { id: 8, method: 'ping' })).status).toBe(404);
        expect((await session.get(to)).status).toBe(404);
      }
      await expect.poll(() => standing.over && stream.over).toBe(true);
      await expect.poll(() => effectsIn(effects).slice(before)).toEqual(['aborted']);
    });

    it.skipIf(SHORT)('end an unused session’s calls elsewhere', async () => {
      const session = await start();
      const before = effectsIn(effects).length;
      const standing = await session.get(1);
      const stream = await session.post(2, call('waits'));
      await startIn(session, 2, stream);
      await stream.next(asks('name'));
      await fetch(servers[0]?.url ?? '', { method: 'DELETE', headers: session.headers });
      await expect.poll(() => standing.over && stream.over).toBe(true);
      await expect.poll(() => effectsIn(effects).slice(before)).toEqual(['aborted']);
    });

    it('take no answer to what was never asked', async () => {
      const session = await start();
      expect((await session.post(1, { id: 'never-asked', result: { roots: [] } })).status).toBe(400);
      expect(await textOf(await session.post(0, call('roots')))).toBe('none yet');
      await expect.poll(() => servers[1]?.stderr()).toContain('not open');
    });

    it('have the tools that a call added in one of them, and tell so once', async () => {
      const session = await start();
      const standing = await session.get(2);
      const before = effectsIn(effects).length;
      const unlocking = await session.post(0, call('unlock'));
      await session.post(1, answer(await unlocking.next(asks('name')), 'name'));
      expect(await textOf(unlocking)).toBe('unlocked its-name');
      for (const to of [0, 1, 2, 1]) {
        const listed = await session.post(to, { id: 7, method: 'tools/list', params: {} });
        const { result } = await listed.next(({ id }) => id === 7);
        const { tools } = result as unknown as { tools: { name: string }[] };
        expect(tools.map(({ name }) => name)).toEqual(['roots', 'unlock', 'waits', 'its-name']);
        expect(await say(session, to, 'its-name')).toBe('licence of its-name');
      }
      await standing.next(({ method }) => method === CHANGED);
      expect(standing.messages.filter(({ method }) => method === CHANGED)).toHaveLength(1);
      // Its step was done once, and no question was asked again.
      expect(effectsIn(effects).slice(before)).toEqual(['licence']);
      expect(unlocking.messages.filter(asks('name'))).toHaveLength(1);
      // Another session has nothing of it.
      const other = await begin(servers, CAPABILITIES);
      const listed = await other.post(1, { id: 7, method: 'tools/list', params: {} });
      const { result } = await listed.next(({ id }) => id === 7);
      expect((result as unknown as { tools: unknown[] }).tools).toHaveLength(3);
    });
  });
}
