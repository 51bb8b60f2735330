/** The same POST twice gets one outcome; with other answers it is refused (invariant 10). */

import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { some } from '../short.ts';
import { accept, post, type RawCall, type RawReply, textOf } from './clients.ts';
import {
  CELLS,
  effectsIn,
  optionsOf,
  type Served,
  type Spawned,
  scratch,
  serveHere,
  spawnServers,
} from './harness.ts';
import { STORES } from './services.ts';

/** The result without what differs between two POSTs: the id. */
const same = (replies: readonly RawReply[]): unknown[] => replies.map(({ message }) => message.result);

describe.each(CELLS)('the same POST in one process ($name)', (cell) => {
  let served: Served;
  let done: string[];
  afterEach(() => served.close());

  const begin = async (): Promise<RawCall> => {
    done = [];
    served = await serveHere(() => buildServer((effect) => done.push(effect)), optionsOf(cell));
    const { state, keys } = await post(served.url, { tool: 'order' });
    return { tool: 'order', state, responses: accept(keys, { address: 'Main St' }) };
  };
  const last = ({ state, keys }: RawReply): RawCall => ({
    tool: 'order',
    state,
    responses: accept(keys, { name: 'Ann' }),
  });

  it('again, gets the same next question and the same result, and does nothing twice', async () => {
    const retry = await begin();
    const second = await post(served.url, retry);
    const again = await post(served.url, retry);
    expect(again.keys).toEqual(second.keys);
    const result = await post(served.url, last(second));
    expect(textOf(result)).toBe('Ann, Main St, 43');
    expect(same([await post(served.url, last(second)), await post(served.url, last(again))])).toEqual(
      same([result, result]),
    );
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });

  it('five times at once, gets one outcome', async () => {
    const retry = await begin();
    const seconds = await Promise.all(Array.from({ length: 5 }, () => post(served.url, retry)));
    const [second] = seconds;
    if (second === undefined) throw new Error('there are five');
    expect(seconds.map(({ keys }) => keys)).toEqual(seconds.map(() => second.keys));
    const results = await Promise.all(seconds.map((reply) => post(served.url, last(reply))));
    expect(results.map(textOf)).toEqual(results.map(() => 'Ann, Main St, 43'));
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });

  it('with other answers, is refused, before and after the call has ended', async () => {
    const retry = await begin();
    const second = await post(served.url, retry);
    const keys = Object.keys(retry.responses as object);
    const other = { ...retry, responses: accept(keys, { address: 'Side St' }) };
    expect((await post(served.url, other)).message.error).toEqual(BAD_TOKEN);
    expect(textOf(await post(served.url, last(second)))).toBe('Ann, Main St, 43');
    expect((await post(served.url, other)).message.error).toEqual(BAD_TOKEN);
    expect(done).toEqual(['charge', 'ship', 'finally']);
  });

  it('without a token, is a new call each time', async () => {
    await begin();
    const { state } = await post(served.url, { tool: 'order' });
    expect((await post(served.url, { tool: 'order' })).state).not.toBe(state);
    expect(done).toEqual(['charge', 'charge', 'charge']);
  });
});

const KINDS = STORES.flatMap(({ name, down, url }) =>
  ['stored', 'sealed'].map((state) => ({ name: `${name}, ${state}`, down, url, state })),
);

for (const { name, down, url, state: kind } of some(KINDS)) {
  describe.skipIf(down)(`the same POST to two processes on ${name}`, () => {
    const effects = join(scratch(), 'effects');
    let servers: Spawned[] = [];
    beforeAll(async () => {
      const options = { args: ['--store', url(), '--state', kind], env: { EFFECTS: effects } };
      servers = await spawnServers('asking-server.ts', 2, options);
    });
    afterAll(() => Promise.all(servers.map((server) => server.kill())));

    it('at once, three times each: one process wins each turn, and all get its outcome', async () => {
      const everywhere = (call: RawCall): Promise<RawReply[]> =>
        Promise.all([...servers, ...servers, ...servers].map((server) => post(server.url, call)));
      const { state, keys } = await post(servers[0]?.url ?? '', { tool: 'order' });
      const retry = { tool: 'order', state, responses: accept(keys, { address: 'Main St' }) };
      const seconds = await everywhere(retry);
      const [second] = seconds;
      if (second === undefined) throw new Error('there are six');
      expect(seconds.map((reply) => reply.keys)).toEqual(seconds.map(() => second.keys));
      const responses = accept(second.keys, { name: 'Ann' });
      const results = await everywhere({ tool: 'order', state: second.state, responses });
      expect(results.map(textOf)).toEqual(results.map(() => 'Ann, Main St, 43'));
      expect(effectsIn(effects)).toEqual(['charge', 'ship', 'finally']);
    });

    it('one after the other, to the other process, with other answers: refused', async () => {
      const [first, second] = servers.map((server) => server.url);
      if (first === undefined || second === undefined) throw new Error('two processes were started');
      const { state, keys } = await post(first, { tool: 'one' });
      const retry = (name: string) => ({ tool: 'one', state, responses: accept(keys, { name }) });
      expect(textOf(await post(first, retry('Ann')))).toBe('Hello Ann');
      expect((await post(second, retry('Bob'))).message.error).toEqual(BAD_TOKEN);
      expect(textOf(await post(second, retry('Ann')))).toBe('Hello Ann');
    });
  });
}
