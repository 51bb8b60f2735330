/** A step runs once in every cell of the matrix, and a tool that changed between ask and answer (invariants 5, 8, 13). */
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, describe, expect, it } from 'vitest';
import { buildServer } from '../fixtures/asking-server.ts';
import { changingServer, type Variant } from '../fixtures/changing-server.ts';
import { advised } from '../fixtures/frozen.ts';
import { accept, legacy, modern, post, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';

let served: Served;
afterEach(() => served.close());

/** Cells in which the tool is run again after it asked, so that it can have changed meanwhile. */
const REPLAYED = CELLS.filter(({ frames }) => frames === 'replayed');
const CHANGED = advised(
  -32603,
  'Internal error: this call cannot be continued, because its tool has changed; call the tool again',
  'divergence',
  false,
);

describe.each(CELLS)('a step ($name)', (cell) => {
  it('runs once, and no catch or finally runs because of a suspend', async () => {
    const done: string[] = [];
    served = await serveHere(() => buildServer((effect) => done.push(effect)), optionsOf(cell));
    const client = await modern(served.url);
    expect(await client.tool('order')).toBe('its name, its address, 43');
    expect(done).toEqual(['charge', 'ship', 'finally']);
    await client.close();
  });

  it('leaves a finally that was not reached alone, when its call is never answered', async () => {
    const done: string[] = [];
    served = await serveHere(() => buildServer((effect) => done.push(effect)), optionsOf(cell));
    expect((await post(served.url, { tool: 'order' })).keys).toHaveLength(1);
    await served.handler.close();
    expect(done).toEqual(['charge']);
  });
});

it('a step of a 2025-11-25 call runs once, its finally when it ends', async () => {
  const done: string[] = [];
  served = await serveHere(() => buildServer((effect) => done.push(effect)));
  const client = await legacy(served.url);
  expect(await client.tool('order')).toBe('its name, its address, 43');
  expect(done).toEqual(['charge', 'ship', 'finally']);
  await client.close();
});

describe.each(REPLAYED)('a tool that is another one by the time of the answer ($name)', (cell) => {
  let current: Variant = 'first';
  const done: string[] = [];

  const serve = async (): Promise<string> => {
    current = 'first';
    done.length = 0;
    const factory = (): McpServer => changingServer(current, (effect) => done.push(effect));
    served = await serveHere(factory, optionsOf(cell));
    return served.url;
  };

  it('asks only for what is missing, where one question was replaced by another', async () => {
    const url = await serve();
    const first = await post(url, { tool: 'book' });
    expect(first.keys).toEqual(['city', 'nights']);
    current = 'other-question';
    const answers = { ...accept(['city'], { city: 'Ghent' }), ...accept(['nights'], { nights: '3' }) };
    const second = await post(url, { tool: 'book', state: first.state, responses: answers });
    expect(second.keys).toEqual(['guests']);
    const responses = accept(['guests'], { guests: '2' });
    const third = await post(url, { tool: 'book', state: second.state, responses });
    expect(textOf(third)).toBe('Ghent, guests 2');
    expect(done).toEqual(['reserve']);
  });

  it('is refused, not run, where a step has another name', async () => {
    const url = await serve();
    const first = await post(url, { tool: 'book' });
    current = 'renamed-step';
    const answers = { ...accept(['city'], { city: 'Ghent' }), ...accept(['nights'], { nights: '3' }) };
    const retry = { tool: 'book', state: first.state, responses: answers };
    const second = await post(url, retry);
    expect(second.message.error).toEqual({
      ...CHANGED,
      message:
        'Internal error: this call cannot be continued, because its tool has changed. Completed steps: reserve',
    });
    expect(done).toEqual(['reserve']);
    const [line] = served.log.lines.filter(({ detail }) => detail.code === 'divergence');
    expect(line?.message).toContain("attempts step 'hold'");
    expect(line?.message).toContain("step 'reserve'");
  });

  it('ends with QuestionDrift, when a question reads otherwise each time: after it was asked again once', async () => {
    const url = await serve();
    current = 'dated';
    const first = await post(url, { tool: 'book' });
    expect(first.keys).toEqual(['elicitation-1']);
    const answer = (keys: readonly string[]) => accept(keys, { city: 'Ghent' });
    const second = await post(url, { tool: 'book', state: first.state, responses: answer(first.keys) });
    expect(second.keys).toHaveLength(1);
    expect(second.keys).not.toEqual(first.keys);
    const third = await post(url, { tool: 'book', state: second.state, responses: answer(second.keys) });
    expect(third.message.error).toEqual(CHANGED);
    expect(served.log.lines.map(({ detail }) => detail.code)).toContain('question-drift');
    expect(served.log.text).toContain("drift: 'reuse'");
  });

  it('takes the answer all the same, when it has a key and drift is reuse', async () => {
    current = 'dated-with-key';
    const options = { ...optionsOf(cell), drift: 'reuse' as const };
    served = await serveHere(() => changingServer(current, () => {}), options);
    const first = await post(served.url, { tool: 'book' });
    expect(first.keys).toEqual(['city']);
    const responses = accept(['city'], { city: 'Ghent' });
    expect(textOf(await post(served.url, { tool: 'book', state: first.state, responses }))).toBe('Ghent');
  });
});

it('a question that reads otherwise each time is asked once, while its frame is kept', async () => {
  served = await serveHere(() => changingServer('dated', () => {}), { secrets: [SECRET] });
  const client = await modern(served.url);
  expect(await client.tool('book')).toBe('its city');
  expect(client.asked).toHaveLength(1);
  await client.close();
});

it('answers without a token are used where the keys that the author gave match, and only there', async () => {
  served = await serveHere(() => changingServer('first', () => {}), { secrets: [SECRET] });
  const responses = { ...accept(['city'], { city: 'Ghent' }), ...accept(['nobody'], { x: 1 }) };
  const first = await post(served.url, { tool: 'book', responses });
  expect(first.keys).toEqual(['nights']);
  const both = { ...responses, ...accept(['nights'], { nights: '3' }) };
  expect(textOf(await post(served.url, { tool: 'book', responses: both }))).toBe('Ghent, nights 3');
  const bad = await post(served.url, { tool: 'book', responses: { city: 'no result' } });
  expect(bad.message.error?.code).toBe(-32602);
  const breaking = await post(served.url, { tool: 'book', responses: accept(['city'], { town: 'Ghent' }) });
  expect(breaking.message.result?.resultType).toBe('input_required');
  expect(breaking.keys).toHaveLength(2);
});
