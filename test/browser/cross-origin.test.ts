/** Pages on other ports and of other sites, in a real browser: what an allowed one may read, and what no other opens. */
import { createServer, type Server } from 'node:http';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listen, SECRET, type Served, serveHere, shut } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { CHROMIUM } from './chromium.ts';
import { launched } from './live-page.ts';

/** A name that the browser of this test finds on this machine, as after a rebinding. */
const ELSEWHERE = 'evil.example';

describe.skipIf(CHROMIUM.down)(`pages in ${CHROMIUM.name}`, () => {
  let browser: Browser;
  let pages: Server;
  let served: Served;
  let port = '';
  beforeAll(async () => {
    browser = await launched(`--host-resolver-rules=MAP ${ELSEWHERE} 127.0.0.1`);
    pages = createServer((_req, res) => void res.writeHead(200, { 'content-type': 'text/html' }).end('<p>'));
    port = new URL(await listen(pages)).port;
    served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET] });
  });
  afterAll(async () => {
    await browser.close();
    await served.close();
    await shut(pages);
  });

  async function open(host: string): Promise<Page> {
    const page = await browser.newPage();
    await page.goto(`http://${host}:${port}/`);
    return page;
  }

  it('of an allowed origin call tools on every wire, from another port', async () => {
    const page = await open('127.0.0.1');
    const said = await page.evaluate(async (url) => {
      const accept = 'application/json, text/event-stream';
      const post = (to: string, message: object, headers: object = {}) =>
        fetch(to, {
          method: 'POST',
          headers: { 'content-type': 'application/json', accept, ...headers },
          body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...message }),
        });
      const params = (protocolVersion: string) => ({
        protocolVersion,
        capabilities: {},
        clientInfo: { name: 'page', version: '1' },
      });
      const list = { method: 'tools/list', params: {} };
      const hasTools = (text: string) => text.includes('"in-turn"');
      const begun = await post(url, { method: 'initialize', params: params('2025-11-25') });
      const session = begun.headers.get('mcp-session-id') ?? '';
      const of = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      const in2025 = await (await post(url, list, of)).text();
      const ended = await fetch(url, { method: 'DELETE', headers: of });
      const meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'page', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
      };
      const modern = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' };
      const in2026 = await (await post(url, { ...list, params: { _meta: meta } }, modern)).text();
      const inWorkspace = await (await post(`${url}/acme`, list)).text();
      const oldest = await new Promise<string>((resolve, reject) => {
        const root = url.replace(/\/mcp$/, '');
        const events = new EventSource(`${root}/sse`);
        events.onerror = () => reject(new Error('no stream'));
        events.addEventListener('endpoint', async ({ data }) => {
          await post(`${root}${data}`, { id: 'begin', method: 'initialize', params: params('2024-11-05') });
        });
        events.addEventListener('message', ({ data }) => {
          resolve(data);
          events.close();
        });
      });
      return [
        hasTools(in2025),
        ended.status,
        hasTools(in2026),
        hasTools(inWorkspace),
        oldest.includes('protocolVersion'),
      ];
    }, served.url);
    expect(said).toEqual([true, 200, true, true, true]);
    await page.close();
  });

  it('of another site read nothing, and open no stream with what needs no permission', async () => {
    const before = { ...served.handler.counters };
    const page = await open(ELSEWHERE);
    const said = await page.evaluate(async (url) => {
      const root = url.replace(/\/mcp$/, '');
      const outcomes: string[] = [];
      for (const to of [`${root}/sse`, `${url}/acme`, url]) {
        const blind = await fetch(to, { mode: 'no-cors' }).then(
          ({ type }) => type,
          () => 'failed',
        );
        const read = await fetch(to).then(
          ({ type }) => type,
          () => 'failed',
        );
        outcomes.push(`${blind} ${read}`);
      }
      return outcomes;
    }, served.url);
    // An opaque reply is one that the page cannot read; here it is the refusal.
    expect(said.every((outcome) => /^(opaque|failed) failed$/.test(outcome))).toBe(true);
    expect(served.handler.counters).toEqual(before);
    expect(served.log.text).toContain('allowedOrigins');
    await page.close();
  });

  it('reach nothing by a name that was rebound to this machine', async () => {
    const page = await browser.newPage();
    const own = new URL(served.url);
    const reply = await page.goto(`http://${ELSEWHERE}:${own.port}/mcp/acme`);
    expect(reply?.status()).toBe(421);
    expect(served.log.text).toContain('allowedHosts');
    await page.close();
  });
});
