/** workspace-sse where every request may reach another process: streams, ids, answers and calls are everybody's. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import process from 'node:process';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { openRelay } from '../../src/relay/open-relay.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { SHORT, some } from '../short.ts';
import { effectsIn, Fleet, SECRET, type Served, type Spawned, scratch, serveHere } from './harness.ts';
import { REDIS, REDIS_URL, SQLITE } from './services.ts';
import { answer, call, get, initialize, post, textOf } from './workspace-wire.ts';

const KINDS = [
  { name: REDIS.name, down: REDIS.down, store: () => REDIS_URL, relay: undefined },
  { name: `${REDIS.name}, with a relay`, down: REDIS.down, store: () => REDIS_URL, relay: REDIS_URL },
  { name: SQLITE.name, down: false, store: () => SQLITE.url(), relay: undefined },
];

let servers: Spawned[] = [];
const open: Served[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((served) => served.close()));
});

it('have a call told once, by who took it up, also when its former process was only silent', async () => {
  const place = SQLITE.url();
  let runs = 0;
  let finish = (): void => {};
  const isTime = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const serve = async (lease: number): Promise<string> => {
    const factory = (): McpServer => {
      const server = new McpServer({ name: 'slow', version: '1.0.0' });
      server.registerTool('work', {}, async () => {
        runs += 1;
        await isTime;
        return { content: [{ type: 'text', text: 'done' }] };
      });
      return server;
    };
    const served = await serveHere(factory, {
      store: await openStore(place),
      secrets: [SECRET],
      limits: { lease },
    });
    open.push(served);
    return `${served.url}/acme`;
  };
  // One shows no sign of life for as long as the test takes, and the other does not wait for it.
  const [silent, hasty] = [await serve(600_000), await serve(300)];
  const stream = await get(hasty, { as: 'ann' });
  await stream.lifecycle('streamOpened');
  expect((await post(silent, call(1, 'work'), { as: 'ann' })).status).toBe(202);
  await expect.poll(() => runs).toBe(2);
  finish();
  expect(textOf(await stream.response(1))).toBe('done');
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(stream.responses()).toHaveLength(1);
});

/** Time for the longest pause between two looks, and for a lease. */
const LONG = 25_000;

for (const { name, down, store, relay } of some(KINDS)) {
  describe.skipIf(down)(`three processes on ${name}`, () => {
    const effects = join(scratch(), 'effects');
    const args = ['--store', store(), ...(relay === undefined ? [] : ['--relay', relay])];
    const fleet = new Fleet('asking-server.ts', 3, { args, env: { EFFECTS: effects } });
    afterAll(() => fleet.down());
    const start = async (): Promise<(nth: number) => string> => {
      servers = await fleet.up();
      const workspace = randomUUID();
      return (nth) => `${servers[nth]?.url}/${workspace}`;
    };

    it('put the response of a POST on the GET of another, with what its client said at a third', async () => {
      const url = await start();
      const stream = await get(url(0));
      await stream.lifecycle('streamOpened');
      expect((await post(url(1), initialize('i', { elicitation: {} }))).status).toBe(202);
      await stream.response('i', LONG);
      expect((await post(url(2), call('1', 'in-turn'))).status).toBe(202);
      for (const [nth, field] of ['name', 'city', 'street'].entries()) {
        const ask = await stream.ask(field, LONG);
        expect(ask.event).toBe('notification');
        expect((await post(url(nth), answer(ask, field))).status).toBe(202);
      }
      expect(textOf(await stream.response('1', LONG))).toBe('its name, its city, its street');
      const again = await (await post(url(1), call('1', 'one'))).end();
      expect([again.status, again.json.error?.code]).toEqual([400, -32600]);
    });

    it('resume a GET elsewhere, and find it there; none when it is closed', async () => {
      const url = await start();
      const first = await get(url(0));
      await first.lifecycle('streamOpened');
      await post(url(2), { id: 1, method: 'ping' });
      await first.response(1, LONG);
      await first.cancel();
      const again = await get(url(1), { last: first.last });
      expect(again.stream).toBe(first.stream);
      // Who listens is a hint: the process that had it may take the newer one's note away, until that is renewed.
      let id = 1;
      const onStream = async (): Promise<number> => (await post(url(2), { id: ++id, method: 'ping' })).status;
      await expect.poll(onStream).toBe(202);
      await again.response(id, LONG);
      expect(again.responses().map((response) => response.id)).toEqual([id]);
      await again.cancel();
      // The process that had it hears of it in a moment.
      await expect
        .poll(async () => (await (await post(url(2), { id: 'after', method: 'ping' })).end()).status)
        .toBe(200);
    });

    it('take a call up whose process was killed, and run no completed step twice', async () => {
      const url = await start();
      const before = effectsIn(effects).length;
      const first = await get(url(0));
      await post(url(0), initialize('i', { elicitation: {} }));
      await first.response('i', LONG);
      await post(url(0), call('1', 'order'));
      const ask = await first.ask('address', LONG);
      await servers[0]?.kill();
      await first.end();
      const again = await get(url(1), { last: first.last });
      expect((await post(url(2), answer(ask, 'address'))).status).toBe(202);
      await post(url(2), answer(await again.ask('name', LONG), 'name'));
      expect(textOf(await again.response('1', LONG))).toBe('its name, its address, 43');
      const acted = effectsIn(effects).slice(before);
      expect(acted.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
      // Told once, however often the client comes back.
      await again.cancel();
      const third = await get(url(2), { last: first.last });
      await third.response('1', LONG);
      expect(third.responses()).toHaveLength(1);
    });

    for (const fate of ['killed', 'stopped'] as const) {
      // Each takes a lease and more: not everywhere.
      it.skipIf(SHORT || relay !== undefined || (fate === 'stopped') === (name === SQLITE.name))(
        `take a call up whose process was ${fate}, while the GET of another stays open`,
        async () => {
          const url = await start();
          const before = effectsIn(effects).length;
          const stream = await get(url(0));
          await post(url(0), initialize('i', { elicitation: {} }));
          await stream.response('i', LONG);
          await post(url(2), call('1', 'order'));
          const ask = await stream.ask('address', LONG);
          const pid = servers[2]?.pid ?? 0;
          if (fate === 'killed') await servers[2]?.kill();
          else process.kill(pid, 'SIGSTOP');
          expect((await post(url(1), answer(ask, 'address'))).status).toBe(202);
          await post(url(1), answer(await stream.ask('name', 50_000), 'name'));
          expect(textOf(await stream.response('1', LONG))).toBe('its name, its address, 43');
          if (fate === 'stopped') {
            process.kill(pid, 'SIGCONT');
            // It learns that the call is another's, and has nothing to tell.
            await new Promise((resolve) => setTimeout(resolve, 3_000));
          }
          const acted = effectsIn(effects).slice(before);
          expect(acted.filter((effect) => effect !== 'finally')).toEqual(['charge', 'ship']);
          expect(stream.responses().filter(({ id }) => id === '1')).toHaveLength(1);
        },
      );
    }

    describe('as two handlers', () => {
      const workspace = randomUUID();
      const serve = async (): Promise<(Served & { readonly url: string })[]> => {
        const place = store();
        const one = async (): Promise<Served> => {
          const served = await serveHere(() => buildServer(() => {}), {
            store: await openStore(place),
            ...(relay !== undefined && { relay: await openRelay(relay) }),
            secrets: [SECRET],
            revisions: ['*', { name: 'workspace-sse', capabilities: { elicitation: {} } }],
            limits: { drain: 50 },
          });
          open.push(served);
          return { ...served, url: `${served.url}/${workspace}` };
        };
        return [await one(), await one()];
      };

      it('take the answers of a POST’s own body, and resume it', async () => {
        const [one = '', two = ''] = (await serve()).map(({ url }) => url);
        const body = await post(one, call('1', 'in-turn'), { as: 'ann' });
        const ask = await body.ask('name', LONG);
        await post(two, answer(ask, 'evil'), { as: 'bob' });
        expect((await post(two, answer(ask, 'name'), { as: 'ann' })).status).toBe(202);
        const city = await body.ask('city', LONG);
        await body.cancel();
        expect((await get(two, { as: 'bob', last: body.last })).status).toBe(400);
        const again = await get(two, { as: 'ann', last: body.last });
        await post(two, answer(city, 'city'), { as: 'ann' });
        await post(one, answer(await again.ask('street', LONG), 'street'), { as: 'ann' });
        expect(textOf(await again.response('1', LONG))).toBe('its name, its city, its street');
        await again.end();
      });

      it('put a response on no stream of somebody else, nor on one of two that are open', async () => {
        const [one = '', two = ''] = (await serve()).map(({ url }) => url);
        const ping = { id: 1, method: 'ping' };
        const stream = await get(one, { as: 'bea' });
        await stream.lifecycle('streamOpened');
        for (const as of ['cid', undefined]) {
          const own = await post(two, ping, { ...(as !== undefined && { as }), stream: stream.stream });
          expect(own.status).toBe(200);
        }
        expect((await post(two, ping, { as: 'bea' })).status).toBe(202);
        await stream.response(1, LONG);
        const other = await get(two, { as: 'bea' });
        await other.lifecycle('streamOpened');
        for (const url of [one, two]) expect((await post(url, ping, { as: 'bea' })).status).toBe(200);
        expect((await post(two, { ...ping, id: 2 }, { as: 'bea', stream: stream.stream })).status).toBe(202);
        await stream.response(2, LONG);
        expect(other.responses()).toEqual([]);
      });

      it('keep apart what is beside a stream, also from who opens one under its id', async () => {
        const [one = '', two = ''] = (await serve()).map(({ url }) => url);
        const [eve, fay] = [{ as: 'eve' }, { as: 'fay' }];
        const stream = await get(one, fay);
        await stream.lifecycle('streamOpened');
        expect((await get(two, { ...eve, last: `${stream.stream}_0` })).status).toBe(400);
        const foreign = await get(two, eve);
        await foreign.lifecycle('streamOpened');
        expect((await post(two, initialize(1, {}), eve)).status).toBe(202);
        await foreign.response(1);
        expect((await post(two, call(1, 'one'), fay)).status).toBe(202);
        await post(one, answer(await stream.ask('name', LONG), 'name'), fay);
        expect(textOf(await stream.response(1, LONG))).toBe('Hello its name');
        expect(foreign.responses()).toHaveLength(1);
      });

      it('know at once that a process went which had the GET', async () => {
        const [one, two] = (await serve()) as [Served, Served];
        const stream = await get(one.url, { as: 'dan' });
        await stream.lifecycle('streamOpened');
        await one.handler.close();
        expect((await stream.end()).events.at(-1)?.message.params).toEqual({ reason: 'shutdown' });
        expect((await post(two.url, { id: 1, method: 'ping' }, { as: 'dan' })).status).toBe(200);
        const again = await get(two.url, { as: 'dan', last: stream.last });
        expect((await post(two.url, { id: 1, method: 'ping' }, { as: 'dan' })).status).toBe(202);
        await again.response(1);
      });
    });
  });
}
