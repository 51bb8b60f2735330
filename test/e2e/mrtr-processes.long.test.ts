/** Both drafts of multi round-trip requests over two processes: every request may arrive at either. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { balance, effectsIn, type Spawned, scratch, spawnServers } from './harness.ts';
import {
  accepted,
  again,
  call,
  DRAFTS,
  errorIn,
  FIRST,
  type Json,
  openSession,
  type RawSession,
  request,
  resultIn,
  textIn,
  until,
} from './rounds.ts';
import { KINDS, REDIS, redisDatabase } from './services.ts';

const OWN_URL = redisDatabase(5);

const RELAYED = {
  name: `${REDIS.name}, with a relay`,
  down: REDIS.down,
  args: () => ['--store', OWN_URL, '--relay', OWN_URL],
};
const WANTED = KINDS.filter(({ name }) => name === REDIS.name || name.includes('sealed'));

async function newTask(session: RawSession, message: Json, to: number): Promise<string> {
  const { task } = resultIn(await session.post(message, to));
  return (task as { taskId: string }).taskId;
}

for (const kind of [...WANTED, RELAYED]) {
  describe.skipIf(kind.down)(`two processes on ${kind.name}`, () => {
    const file = join(scratch(), 'effects');
    let servers: Spawned[] = [];
    beforeAll(async () => {
      const args = [...kind.args(), ...(kind.name.includes('sealed') ? [] : ['--tasks', 'optional'])];
      servers = await spawnServers('rounds-server.ts', 2, { args, env: { EFFECTS: file } });
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));
    const urls = (): string[] => servers.map(({ url }) => url);

    describe.each(DRAFTS)('$revision', (words) => {
      it('continues in the other process, and does no step twice', async () => {
        const before = effectsIn(file).length;
        const session = await openSession(urls(), words.revision);
        const asking = call('order');
        const first = await session.post(asking, 1);
        const address = words.answers({ address: accepted({ address: 'Ghent' }) });
        const second = await session.post(words.retry(again(asking), words.state(first.message), address), 0);
        const name = words.answers({ name: accepted({ name: 'Ann' }) });
        const last = words.retry(again(asking), words.state(second.message), name);
        expect(textIn(await session.post(last, 1))).toBe('Ann, Ghent');
        expect(effectsIn(file).slice(before)).toEqual(['charge']);
      });

      it('goes through a balancer that knows nothing', async () => {
        const balancer = await balance(urls());
        const session = await openSession(balancer.url, words.revision);
        const asking = call('login');
        const first = await session.post(asking);
        const answers = words.answers({
          github_login: accepted({ name: 'octocat' }),
          google_login: accepted({ name: 'gus' }),
        });
        const retry = words.retry(again(asking), words.state(first.message), answers);
        expect(textIn(await session.post(retry))).toBe('octocat & gus');
        expect(new Set(balancer.posts.map(({ to }) => to)).size).toBe(2);
        await balancer.close();
      });

      it('is given up here, and continues there', async () => {
        const before = effectsIn(file).length;
        const session = await openSession(urls(), words.revision);
        const asking = call('sheds');
        const first = await session.post(asking, 0);
        expect(words.asked(first.message)).toEqual({});
        const second = await session.post(words.retry(again(asking), words.state(first.message)), 1);
        const name = words.answers({ name: accepted({ name: 'Ann' }) });
        const third = await session.post(words.retry(again(asking), words.state(second.message), name), 0);
        expect(textIn(third)).toBe('computed, Ann');
        expect(effectsIn(file).slice(before)).toEqual(['compute']);
      });

      it.skipIf(kind.name.includes('sealed'))('has tasks everywhere', async () => {
        const session = await openSession(urls(), words.revision);
        const taskId = await newTask(session, call('login', { task: { ttl: 60_000 } }), 0);
        await until(session, taskId, 'input_required', 1);
        const asks = await session.post(request('tasks/result', { taskId }), 1);
        expect(Object.keys(words.asked(asks.message))).toEqual(['github_login', 'google_login']);
        const one = (key: string, name: string): Json =>
          words.taskAnswer(7, taskId, words.answers({ [key]: accepted({ name }) }));
        const both = [
          session.post(one('github_login', 'octocat'), 1),
          session.post(one('google_login', 'gus'), 0),
        ];
        for (const taken of await Promise.all(both)) expect(taken.status).toBeLessThan(300);
        const final = await session.post(request('tasks/result', { taskId }), 1);
        expect(textIn(final)).toBe('octocat & gus');
        const late = await session.post(request('tasks/cancel', { taskId }), 0);
        expect(errorIn(late).code).toBe(-32602);
        const { tasks } = resultIn(await session.post(request('tasks/list'), 1)) as { tasks: Json[] };
        expect(tasks.map((task) => task.taskId)).toEqual([taskId]);
        const stopped = await newTask(session, call('echo', { task: {} }), 0);
        await until(session, stopped, 'input_required', 1);
        const gone = await session.post(request('tasks/cancel', { taskId: stopped }), 1);
        expect(resultIn(gone)).toMatchObject({ status: words.status('cancelled') });
        await until(session, stopped, words.status('cancelled'), 0);
      });
    });
  });
}

describe.skipIf(REDIS.down)(`what is lost with a process, on ${REDIS.name}`, () => {
  const start = (env: Record<string, string> = {}): Promise<Spawned[]> =>
    spawnServers('rounds-server.ts', 1, { args: ['--store', OWN_URL, '--tasks', 'optional'], env });

  it.each(DRAFTS)('no task ($revision)', async (words) => {
    const servers = (await Promise.all([start(), start()])).flat();
    const session = await openSession(
      servers.map(({ url }) => url),
      words.revision,
    );
    const taskId = await newTask(session, call('echo', { task: {} }), 0);
    await until(session, taskId, 'input_required', 1);
    await servers[0]?.kill();
    const answers = words.answers({ echo_input: accepted({ input: 'still' }) });
    await session.post(words.taskAnswer(8, taskId, answers), 1);
    expect(textIn(await session.post(request('tasks/result', { taskId }), 1))).toBe('Echo: still');
    await servers[1]?.kill();
  });

  it.each(DRAFTS)('no answer, when the next one is an upgrade ($revision)', async (words) => {
    const servers = (await Promise.all([start(), start({ VERSION: 'new' })])).flat();
    const session = await openSession(
      servers.map(({ url }) => url),
      words.revision,
    );
    const asking = call('login');
    const first = await session.post(asking, 0);
    await servers[0]?.kill();
    const both = { github_login: accepted({ name: 'octocat' }), google_login: accepted({ name: 'gus' }) };
    const retry = words.retry(again(asking), words.state(first.message), words.answers(both));
    const second = await session.post(retry, 1);
    expect(Object.keys(words.asked(second.message))).toEqual(['microsoft_login']);
    const one = words.answers({ microsoft_login: accepted({ name: 'mike' }) });
    const third = await session.post(words.retry(again(asking), words.state(second.message), one), 1);
    expect(textIn(third)).toBe('octocat & mike');
    await servers[1]?.kill();
  });

  it('nothing of what a call of the first draft has said so far', async () => {
    const servers = (await Promise.all([start(), start()])).flat();
    const session = await openSession(
      servers.map(({ url }) => url),
      FIRST.revision,
    );
    const asking = call('notes', { _meta: { progressToken: 'p' } });
    const first = await session.post(asking, 0);
    const name = FIRST.answers({ name: accepted({ name: 'Ann' }) });
    expect(first.notifications).toEqual([]);
    await servers[0]?.kill();
    const second = await session.post(FIRST.retry(again(asking), FIRST.state(first.message), name), 1);
    const city = FIRST.answers({ city: accepted({ city: 'Ghent' }) });
    const third = await session.post(FIRST.retry(again(asking), FIRST.state(second.message), city), 1);
    expect(third.notifications).toMatchObject([1, 2, 3].map((progress) => ({ params: { progress } })));
    expect(textIn(third)).toBe('Ann of Ghent');
    await servers[1]?.kill();
  });
});
