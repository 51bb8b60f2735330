/**
 * What a client describes itself with, and what the store keeps of strangers: bounded, counted, and gone with its
 * session. Asserted by bytes and counts.
 */
import Keyv from 'keyv';
import { afterEach, describe, expect, it } from 'vitest';
import { tuned } from '../../src/call/limits.ts';
import { openStore } from '../../src/checkpoint/open-store.ts';
import type { AwaitOptions } from '../../src/index.ts';
import { accept, modernHeaders, post } from '../e2e/clients.ts';
import { SECRET, type Served, serveHere } from '../e2e/harness.ts';
import { Reader } from '../e2e/reader.ts';
import { STORES } from '../e2e/services.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { flakyStore } from '../fixtures/flaky-store.ts';
import { some } from '../short.ts';
import { begin, initialize, inSession, Peer } from './peer.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function serve(options: AwaitOptions = {}, build = buildServer): Promise<Served> {
  const served = await serveHere(() => build(() => {}), { secrets: [SECRET], ...options });
  ends.push(() => served.close());
  return served;
}

const described = (version: string, info: object) => {
  const { params, ...rest } = initialize(version);
  return { ...rest, params: { ...params, clientInfo: { ...params.clientInfo, ...info } } };
};
const LONG = { title: 'x'.repeat(20_000) };
const ICONS = { icons: [{ src: `data:image/png;base64,${'x'.repeat(100_000)}` }] };

describe('a client that describes itself at length', () => {
  it.each([
    '2025-03-26',
    '2025-06-18',
    '2025-11-25',
    'DRAFT-MRTR-2026-02',
    'DRAFT-SEP-2322',
    'DRAFT-SEP-1858',
  ])('is refused on %s, and nothing of it is kept', async (version) => {
    const kept = new Map<string, string>();
    const { url } = await serve({ store: new Keyv({ store: kept }) });
    const { status, messages } = await new Peer(url, {}).post(described(version, LONG));
    expect([status, messages[0]?.error?.message]).toEqual([413, expect.stringContaining('16384')]);
    expect(kept.size).toBe(0);
  });

  it('is refused by a workspace and on 2024-11-05', async () => {
    const { url } = await serve();
    expect((await new Peer(`${url}/acme`, {}).post(described('2025-06-18', LONG))).status).toBe(413);
    const stream = new Reader(await fetch(url.replace(/mcp$/, 'sse')));
    await expect.poll(() => /^data: (.+)$/m.exec(stream.text)?.[1]).toBeDefined();
    const peer = new Peer(new URL(/^data: (.+)$/m.exec(stream.text)?.[1] ?? '', url).href, {});
    expect((await peer.post(described('2024-11-05', LONG))).status).toBe(413);
  });

  it('is refused on 2026-07-28, by capabilities too', async () => {
    const { url } = await serve();
    const envelope = (info: object, capabilities: object) => ({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'echo',
        arguments: {},
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientInfo': { name: 'long', version: '1', ...info },
          'io.modelcontextprotocol/clientCapabilities': capabilities,
        },
      },
    });
    const peer = new Peer(url, modernHeaders('tools/call', 'echo'));
    expect((await peer.post(envelope(LONG, {}))).status).toBe(413);
    expect((await peer.post(envelope({}, { experimental: { x: LONG } }))).status).toBe(413);
    expect((await peer.post(envelope(ICONS, {}))).status).toBe(200);
  });

  it('may have icons, which are not kept', async () => {
    const kept = new Map<string, string>();
    const { url } = await serve({ store: new Keyv({ store: kept }) });
    const long = { ...ICONS, title: 'x'.repeat(10_000) };
    const { status } = await new Peer(url, {}).post(described('2025-11-25', long));
    expect(status).toBe(200);
    const bytes = [...kept.values()].reduce((sum, record) => sum + record.length, 0);
    expect(bytes).toBeGreaterThan(10_000);
    expect(bytes).toBeLessThan(20_000);
  });
});

describe('the records of sessions', () => {
  const long = (version: string) => described(version, { title: 'x'.repeat(15_000) });

  it('go when their session is deleted, but for the mark of its end', async () => {
    const kept = new Map<string, string>();
    const { url } = await serve({ store: new Keyv({ store: kept }) });
    for (let nth = 0; nth < 20; nth += 1) {
      const { headers } = await new Peer(url, {}).post(long('2025-11-25'));
      const session = headers.get('mcp-session-id') ?? '';
      const own = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      expect((await fetch(url, { method: 'DELETE', headers: own })).status).toBe(200);
      expect((await new Peer(url, own).post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status).toBe(404);
    }
    expect(kept.size).toBe(20);
    expect([...kept.values()].every((record) => record.length < 200)).toBe(true);
  });

  it('are counted: of those that are not deleted the oldest go, for one caller and for strangers', async () => {
    const kept = new Map<string, string>();
    const limits = { anonymousSessions: 2, sessions: 4, callerStoredBytes: 100_000 };
    const { url } = await serve({ store: new Keyv({ store: kept }), ...tuned(limits) });
    for (let nth = 0; nth < 40; nth += 1) {
      expect((await new Peer(url, {}).post(long('2025-11-25'))).status).toBe(200);
    }
    const bytes = [...kept.values()].reduce((sum, record) => sum + record.length, 0);
    expect(bytes).toBeLessThan(110_000);
    expect((await begin(url, '2025-11-25')).status).toBe(200);
  });
});

describe.each(some(STORES))('calls of strangers in $name', ({ url: location, down }) => {
  it.skipIf(down)('take callerStoredBytes of each process, and known callers have theirs', async () => {
    const store = await openStore(location());
    ends.push(() => store.disconnect());
    const limits = { callerStoredBytes: 100_000, lease: 100 };
    const { url, log } = await serve({ store, ...tuned(limits), audience: `strangers ${Date.now()}` });
    const ask = (caller?: string) =>
      post(url, {
        tool: 'echo',
        args: { word: 'x'.repeat(20_000) },
        ...(caller !== undefined && { headers: { authorization: `Bearer ${caller}` } }),
      });
    const outcomes = [];
    for (let nth = 0; nth < 20; nth += 1) outcomes.push((await ask()).message.error === undefined);
    expect(outcomes.filter(Boolean).length).toBeLessThanOrEqual(4);
    expect(log.text).toContain('its part of limits.storedBytes');
    expect((await ask('ann')).message.error).toBeUndefined();
  });
});

describe('a call that ended in another process', () => {
  it('makes room for the next one, where it took up all of it', async () => {
    const kept = flakyStore();
    // As a shared store: without the primitive it is none of this process alone.
    const open = () =>
      serve({ store: kept.store, ...tuned({ callerStoredBytes: 100_000, lease: 50, frames: 0 }) });
    const [first, second] = [await open(), await open()];
    const args = { word: 'x'.repeat(60_000) };
    const begun = await post(first.url, { tool: 'echo', args });
    const responses = accept(begun.keys, { name: 'Ann' });
    const ended = await post(second.url, { tool: 'echo', args, state: begun.state, responses });
    expect(ended.message.error).toBeUndefined();
    const next = async () => (await post(first.url, { tool: 'echo', args })).message.error;
    await expect.poll(next).toBeUndefined();
  });

  it.each(some(STORES))('makes room for the next one on $name', async ({ url: location, down }) => {
    if (down) return;
    // Two Keyvs of one process may share a pool, which ends once.
    const place = location();
    const audience = `elsewhere ${Date.now()}`;
    const limits = { callerStoredBytes: 100_000, lease: 200, frames: 0 };
    const open = async () => {
      const store = await openStore(place);
      ends.push(() => store.disconnect().catch(() => {}));
      return serve({ store, ...tuned(limits), audience });
    };
    const [first, second] = [await open(), await open()];
    const args = { word: 'x'.repeat(20_000) };
    for (let nth = 0; nth < 30; nth += 1) {
      let begun = await post(first.url, { tool: 'echo', args });
      // Looked after in the background, and deleted after some leases.
      await expect
        .poll(async () => {
          if (begun.message.error !== undefined) begun = await post(first.url, { tool: 'echo', args });
          return begun.message.error;
        })
        .toBeUndefined();
      const { state, keys } = begun;
      const responses = Object.fromEntries(
        keys.map((key) => [key, { action: 'accept', content: { name: 'Ann' } }]),
      );
      const ended = await post(second.url, { tool: 'echo', args, state, responses });
      expect(ended.message.error).toBeUndefined();
    }
  });
});

it('a stranger’s session stays usable while others begin', async () => {
  const { url } = await serve();
  const peer = await inSession(url, '2025-11-25');
  for (let nth = 0; nth < 5; nth += 1) await begin(url, '2025-11-25');
  expect((await peer.post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status).toBe(200);
});
