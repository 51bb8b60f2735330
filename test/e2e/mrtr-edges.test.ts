/** Both drafts of multi round-trip requests beside what else a handler does: sessions, servers of SDK v2, limits. */
import { afterEach, describe, expect, it } from 'vitest';
import { v2Server } from '../fixtures/v2-server.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';
import { Reader } from './reader.ts';
import {
  APPROVED,
  accepted,
  again,
  call,
  DRAFTS,
  errorIn,
  type Json,
  openSession,
  request,
  resultIn,
  serveRounds,
  textIn,
} from './rounds.ts';

const MATRIX = DRAFTS.flatMap((words) => CELLS.map((cell) => ({ words, cell, name: cell.name })));

let served: Served;
afterEach(() => served.close());

describe.each(MATRIX)('$words.revision ($name)', ({ words, cell }) => {
  it('serves servers of SDK v2, await-style or not', async () => {
    served = await serveHere(() => v2Server(() => {}), optionsOf(cell));
    const session = await openSession(served.url, words.revision);
    const asking = call('elicit');
    const first = await session.post(asking);
    const [key = ''] = Object.keys(words.asked(first.message));
    const name = words.answers({ [key]: accepted({ name: 'Ann' }) });
    const done = await session.post(words.retry(again(asking), words.state(first.message), name));
    expect(textIn(done)).toBe('Hello Ann');
    const reentrant = call('re-entrant');
    const who = await session.post(reentrant);
    expect(Object.keys(words.asked(who.message))).toEqual(['who']);
    const ann = words.answers({ who: accepted({ name: 'Ann' }) });
    const where = await session.post(words.retry(again(reentrant), words.state(who.message), ann));
    expect(Object.keys(words.asked(where.message))).toEqual(['home']);
  });

  it('serves each call from an instance of its own, where that is wanted', async () => {
    served = await serveRounds(cell, { instance: 'call' });
    const session = await openSession(served.url, words.revision);
    const asking = call('echo');
    const first = await session.post(asking);
    const input = words.answers({ echo_input: accepted({ input: 'own' }) });
    const done = await session.post(words.retry(again(asking), words.state(first.message), input));
    expect(textIn(done)).toBe('Echo: own');
  });

  it('answers a client that takes JSON alone in JSON, whatever is said before', async () => {
    served = await serveRounds(cell);
    const session = await openSession(served.url, words.revision);
    const alone = { accept: 'application/json' };
    const asking = call('echo');
    const first = await session.post(asking, 0, alone);
    expect([first.status, first.type]).toEqual([200, 'application/json']);
    const input = words.answers({ echo_input: accepted({ input: 'own' }) });
    const done = await session.post(words.retry(again(asking), words.state(first.message), input), 0, alone);
    expect([done.status, done.type]).toEqual([200, 'application/json']);
    expect(textIn(done)).toContain('own');
    expect((await session.post(call('echo'), 0, { accept: 'text/html' })).status).toBe(406);
    const params = {
      protocolVersion: words.revision,
      capabilities: {},
      clientInfo: { name: 'x', version: '1' },
    };
    const begun = await fetch(served.url, {
      method: 'POST',
      headers: { ...alone, 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }),
    });
    expect(begun.status).toBe(200);
  });

  it('takes any id for a retry in another session, where ids mean nothing', async () => {
    served = await serveRounds(cell);
    const session = await openSession(served.url, words.revision);
    const asking = call('echo');
    const first = await session.post(asking);
    const input = words.answers({ echo_input: accepted({ input: 'own' }) });
    const retry = words.retry(asking, words.state(first.message), input);
    const other = await openSession(served.url, words.revision);
    expect(textIn(await other.post(retry))).toContain('own');
  });

  it('continues in another session of the same caller', async () => {
    served = await serveRounds(cell);
    const session = await openSession(served.url, words.revision, { bearer: 'ann' });
    const asking = call('echo');
    const first = await session.post(asking);
    await fetch(served.url, { method: 'DELETE', headers: session.headers });
    const next = await openSession(served.url, words.revision, { bearer: 'ann' });
    const input = words.answers({ echo_input: accepted({ input: 'next' }) });
    const done = await next.post(words.retry(again(asking), words.state(first.message), input));
    expect(textIn(done)).toBe('Echo: next');
  });

  it('runs a retry that comes twice at once, once', async () => {
    const effects: string[] = [];
    served = await serveRounds(cell, {}, { act: (effect) => effects.push(effect) });
    const session = await openSession(served.url, words.revision);
    const asking = call('order');
    const first = await session.post(asking);
    const address = words.answers({ address: accepted({ address: 'Ghent' }) });
    const retry = words.retry(again(asking), words.state(first.message), address);
    const [one, two] = await Promise.all([session.post(retry), session.post(retry)]);
    expect(Object.keys(words.asked(one?.message ?? {}))).toEqual(['name']);
    expect(words.asked(two?.message ?? {})).toEqual(words.asked(one?.message ?? {}));
    expect(effects).toEqual(['charge']);
  });

  it('ignores keys that no object should have', async () => {
    served = await serveRounds(cell);
    const session = await openSession(served.url, words.revision);
    const asking = call('echo');
    const first = await session.post(asking);
    const answers = words.answers({ constructor: accepted({}), echo_input: accepted({ input: 'hi' }) });
    const retry = words.retry(again(asking), words.state(first.message), answers);
    const value = words === APPROVED ? '{"action":"accept"}' : '{"result":{"action":"accept"}}';
    const body = JSON.stringify(retry).replace('"constructor"', `"__proto__":${value},"constructor"`);
    const reply = await fetch(served.url, { method: 'POST', headers: session.headers, body });
    expect(await reply.text()).toContain('Echo: hi');
  });
});

describe.each(DRAFTS)('$revision', (words) => {
  it('has the standing stream of the sessions of 2025, in its own words alone', async () => {
    served = await serveRounds(CELLS[0] as (typeof CELLS)[number]);
    const session = await openSession(served.url, words.revision);
    const headers = { ...session.headers, accept: 'text/event-stream' };
    const stream = new Reader(await fetch(served.url, { headers }));
    expect(stream.status).toBe(200);
    const { 'mcp-protocol-version': _version, ...bare }: Record<string, string> = headers;
    expect((await fetch(served.url, { headers: bare })).status).toBe(400);
  });

  it('counts retries against their own limit', async () => {
    served = await serveRounds(CELLS[0] as (typeof CELLS)[number], {
      rateLimit: { resumes: { most: 1, per: 60_000 }, calls: { most: 3, per: 60_000 } },
    });
    const session = await openSession(served.url, words.revision, { bearer: 'ann' });
    const asking = call('echo');
    const first = await session.post(asking);
    const retry = (): Json => words.retry(again(asking), words.state(first.message), words.answers({}));
    expect((await session.post(retry())).status).toBe(200);
    expect((await session.post(retry())).status).toBe(429);
    expect((await session.post(call('echo'))).status).toBe(200);
  });

  it('is refused where it is not served, and served alone where it is', async () => {
    served = await serveHere(() => v2Server(() => {}), { secrets: [SECRET], revisions: ['2025-11-25'] });
    const other = await openSession(served.url, words.revision);
    expect(resultIn(other.begun).protocolVersion).toBe('2025-11-25');
    expect((await other.post(request('ping'))).status).toBe(400);
    await served.close();
    const revisions = [words.revision as 'DRAFT-SEP-2322'];
    served = await serveHere(() => v2Server(() => {}), { secrets: [SECRET], revisions });
    const session = await openSession(served.url, words.revision);
    expect(resultIn(session.begun).protocolVersion).toBe(words.revision);
    expect(resultIn(await session.post(request('tools/list')))).toHaveProperty('tools');
  });

  it('tells a tool whose client cannot be asked, and asks nothing', async () => {
    served = await serveRounds(CELLS[0] as (typeof CELLS)[number]);
    const session = await openSession(served.url, words.revision, { capabilities: {} });
    const reply = await session.post(call('echo'));
    expect(words.asked(reply.message)).toEqual({});
    expect(resultIn(reply).isError ?? errorIn(reply).code).toBeTruthy();
  });

  it('tells the tool so by an error of its ask, with no code that 2026-07-28 brought', async () => {
    served = await serveRounds(CELLS[0] as (typeof CELLS)[number]);
    const session = await openSession(served.url, words.revision, { capabilities: { elicitation: {} } });
    // SDK v1 checks a client's sampling capability only if the server has tools.
    const result = resultIn(await session.post(call('both')));
    expect(result).toMatchObject({ isError: true });
    expect(JSON.stringify(result.content)).toContain('does not support sampling');
  });
});
