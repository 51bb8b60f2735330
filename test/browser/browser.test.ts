/**
 * A page in a real browser: it calls a tool with `fetch`, reads the stream of its POST, asks its user, is reloaded in
 * the middle of the call, and continues by GET. The browser's own network record shows how it treated the streams.
 */
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createAwaitHandler } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { LogBook, listen, shut } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { CHROMIUM } from './chromium.ts';
import { launched } from './live-page.ts';

const PAGE = readFileSync(new URL('./page.html', import.meta.url));

interface Received {
  readonly type: string;
  readonly requestId: string;
  readonly response: { readonly url: string; readonly mimeType: string; readonly status: number };
}

describe.skipIf(CHROMIUM.down)(`a page in ${CHROMIUM.name}`, () => {
  let browser: Browser;
  let server: Server;
  let url = '';
  const handler = createAwaitHandler(() => buildServer(() => {}), { logger: new LogBook() });
  beforeAll(async () => {
    browser = await launched();
    const listener = toNodeHandler(handler, { compress: true });
    server = createServer((req, res) => {
      if (req.url === '/mcp') void listener(req, res);
      else res.writeHead(200, { 'content-type': 'text/html' }).end(PAGE);
    });
    url = await listen(server);
  });
  afterAll(async () => {
    await browser.close();
    await handler.close();
    await shut(server);
  });

  it('calls a tool, answers, is reloaded in mid-call, and continues by GET', async () => {
    const page = await browser.newPage();
    const network = await page.context().newCDPSession(page);
    await network.send('Network.enable');
    const verbs = new Map<string, string>();
    const streams: { verb: string; type: string; encoding: string }[] = [];
    network.on('Network.requestWillBeSent', ({ requestId, request }) => {
      verbs.set(requestId, request.method);
    });
    network.on(
      'Network.responseReceived',
      ({ requestId, type, response }: Received & { response: object }) => {
        if (response.mimeType !== 'text/event-stream') return;
        const { headers = {} } = response as { headers?: Record<string, string> };
        const encoding = headers['content-encoding'] ?? '';
        streams.push({ verb: verbs.get(requestId) ?? '', type, encoding });
      },
    );

    await page.goto(url);
    const answer = async (question: string, text: string): Promise<void> => {
      await page.getByText(question).waitFor();
      await page.fill('#answer', text);
      await page.getByRole('button', { name: 'Answer' }).click();
    };
    await page.getByRole('button', { name: 'Call' }).click();
    await answer('name?', 'Ann');
    await page.getByText('city?').waitFor();
    const last = await page.evaluate(() => JSON.parse(sessionStorage.getItem('mcp') ?? '{}').streams.call);
    expect(last).toMatch(/_\d+$/);
    await page.reload();
    await answer('city?', 'Rome');
    await answer('street?', 'Via Appia');
    await page.getByText('Ann, Rome, Via Appia').waitFor();
    // Neither was an EventSource: a POST cannot be one.
    expect(streams).toEqual([
      { verb: 'POST', type: 'Fetch', encoding: 'gzip' },
      { verb: 'GET', type: 'Fetch', encoding: 'gzip' },
    ]);
    expect(await page.evaluate(() => JSON.parse(sessionStorage.getItem('mcp') ?? '{}').streams)).toEqual({});
    expect(handler.counters).toMatchObject({ postStreams: 1, getStreams: 0, resumedStreams: 1 });
    await page.close();
  });
});
