/** What a `requestState` that is not good gets: one frozen sentence, whatever is wrong (issue, bad input). */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { KNOWN, TABLE } from '../../compat/revisions.ts';
import { createServices } from '../../src/handler/services.ts';
import { settle } from '../../src/handler/settings.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { BAD_TOKEN } from '../fixtures/frozen.ts';
import { accept, post, type RawReply, send, textOf } from './clients.ts';
import { CELLS, optionsOf, SECRET, type Served, serveHere } from './harness.ts';

describe.each(CELLS)('a token that is not good ($name)', (cell) => {
  let served: Served;

  const serve = async (): Promise<string> => {
    served = await serveHere(() => buildServer(() => {}), optionsOf(cell));
    return served.url;
  };
  const ask = (url: string, headers = {}): Promise<RawReply> =>
    post(url, { tool: 'echo', args: { word: 'hi' }, headers });
  /** The reply is the frozen one to the byte, nothing of the reason in it; the logger has the reason. */
  const refused = (reply: RawReply, id: number, reason: RegExp): void => {
    expect(reply.status).toBe(200);
    expect(reply.text).toBe(JSON.stringify({ jsonrpc: '2.0', id, error: BAD_TOKEN }));
    const refusals = served.log.lines.filter(({ detail }) => detail.code === 'bad-token');
    expect(refusals).toHaveLength(1);
    expect(`${refusals[0]?.message} ${String(refusals[0]?.detail.cause ?? '')}`).toMatch(reason);
  };
  const retry = (url: string, state: unknown, changed: object = {}): Promise<RawReply> =>
    post(url, {
      tool: 'echo',
      args: { word: 'hi' },
      id: 77,
      state,
      responses: accept(['elicitation-1'], { name: 'Ann' }),
      ...changed,
    });

  afterEach(async () => {
    vi.useRealTimers();
    await served.close();
  });

  it('is a good one, when nothing is wrong', async () => {
    const url = await serve();
    const first = await ask(url);
    expect(first.keys).toEqual(['elicitation-1']);
    expect(textOf(await retry(url, first.state))).toBe('hi Ann');
  });

  it.each([
    ['unknown', 'nonsense', /opened|no compact JWE/],
    ['empty', '', /opened|no compact JWE/],
    ['no string', { state: 1 }, /it is no string/],
    ['too long', 'x'.repeat(1_048_577), /1048577 characters/],
  ])('is %s', async (_name, state, reason) => {
    refused(await retry(await serve(), state), 77, reason);
  });

  it('was tampered with', async () => {
    const url = await serve();
    const { state } = await ask(url);
    const middle = Math.floor(state.length / 2);
    const flipped = state[middle] === 'A' ? 'B' : 'A';
    refused(await retry(url, state.slice(0, middle) + flipped + state.slice(middle + 1)), 77, /opened/);
  });

  it('is expired', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const url = await serve();
    const { state } = await ask(url);
    vi.setSystemTime(Date.now() + 3_600_001);
    refused(await retry(url, state), 77, /expired/);
  });

  it("is another caller's", async () => {
    const url = await serve();
    const { state } = await ask(url, { authorization: 'Bearer ann' });
    const mallory = { headers: { authorization: 'Bearer mallory' } };
    refused(await retry(url, state, mallory), 77, /another principal/);
    expect(textOf(await retry(url, state, { headers: { authorization: 'Bearer ann' } }))).toBe('hi Ann');
  });

  it("is a known caller's, and comes from an anonymous one", async () => {
    const url = await serve();
    const { state } = await ask(url, { authorization: 'Bearer ann' });
    refused(await retry(url, state), 77, /another principal/);
  });

  it("is nobody's, and comes from a known caller", async () => {
    const url = await serve();
    const { state } = await ask(url);
    refused(await retry(url, state, { headers: { authorization: 'Bearer ann' } }), 77, /another principal/);
  });

  it("is another tool's", async () => {
    const url = await serve();
    const { state } = await ask(url);
    refused(await retry(url, state, { tool: 'one' }), 77, /another target/);
  });

  it('comes with other arguments', async () => {
    const url = await serve();
    const { state } = await ask(url);
    refused(await retry(url, state, { args: { word: 'ho' } }), 77, /another args/);
  });

  it("is a tool's, and comes with a prompt", async () => {
    const url = await serve();
    const { state } = await ask(url);
    refused(await retry(url, state, { method: 'prompts/get' }), 77, /another method/);
  });

  it("is another revision's, sealed with the same secret", async () => {
    const url = await serve();
    const { tokens } = otherService('mcp-await');
    const binding = { revision: 'DRAFT-2025', method: 'tools/call', target: 'echo', args: 'x' };
    const state = await tokens.seal('state', { callId: 'x', at: 0, binding }, Date.now() + 60_000);
    refused(await retry(url, state), 77, /another (revision|args)/);
  });

  it("is another service's, sealed with the same secret", async () => {
    const url = await serve();
    const { tokens } = otherService('another service');
    const state = await tokens.seal('state', {}, Date.now() + 60_000);
    refused(await retry(url, state), 77, /it is for another service/);
  });

  it('was made for another purpose with the same secret', async () => {
    const url = await serve();
    const { tokens } = otherService('mcp-await');
    const state = await tokens.seal('session', {}, Date.now() + 60_000);
    refused(await retry(url, state), 77, /opened/);
  });

  it('was sealed with a secret that is not ours', async () => {
    const url = await serve();
    const { tokens } = otherService('mcp-await', 'a secret that nobody here knows, of 32 bytes');
    const state = await tokens.seal('state', {}, Date.now() + 60_000);
    refused(await retry(url, state), 77, /no secret has its key id/);
  });

  it('was answered already, and comes with other answers', async () => {
    const url = await serve();
    const { state } = await ask(url);
    expect(textOf(await retry(url, state))).toBe('hi Ann');
    const changed = { responses: accept(['elicitation-1'], { name: 'Bob' }) };
    refused(await retry(url, state, changed), 77, /other answers/);
  });
});

describe('a token of a store that is not this one', () => {
  it('is refused like any other', async () => {
    const here = await serveHere(() => buildServer(() => {}), { secrets: [SECRET] });
    const there = await serveHere(() => buildServer(() => {}), { secrets: [SECRET] });
    const { state } = await post(there.url, { tool: 'one' });
    const reply = await post(here.url, { tool: 'one', state, id: 5 });
    expect(reply.text).toBe(JSON.stringify({ jsonrpc: '2.0', id: 5, error: BAD_TOKEN }));
    expect(here.log.text).toContain('has no checkpoint');
    await here.close();
    await there.close();
  });

  it('reads the same where the SDK itself, not the lean path, serves the request', async () => {
    const served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET] });
    const lean = await post(served.url, { tool: 'one', state: 'nonsense', id: 9 });
    // An encoded name is one that the lean path leaves to the SDK.
    const name = `=?base64?${Buffer.from('one').toString('base64')}?=`;
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 9,
      method: 'tools/call',
      params: {
        name: 'one',
        arguments: {},
        requestState: 'nonsense',
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientInfo': { name: 'e2e', version: '1' },
          'io.modelcontextprotocol/clientCapabilities': {},
        },
      },
    });
    const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': name };
    const whole = await send(served.url, body, { headers });
    expect(whole.message).toEqual(lean.message);
    expect(whole.status).toBe(lean.status);
    await served.close();
  });
});

function otherService(audience: string, secret = SECRET) {
  const services = createServices(
    () => buildServer(() => {}),
    settle({ secrets: [secret], audience }, KNOWN),
    TABLE,
  );
  services.close();
  return { tokens: services.sealer };
}
