/** The pairing page of `--ask-pair` in a real browser, with the pages behind it: and what no other site may do with them. */
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOCAL, Pairing } from '../../src/cli/pairing.ts';
import { createAwaitHandler } from '../../src/index.ts';
import { toNodeHandler } from '../../src/node.ts';
import { post, textOf } from '../e2e/clients.ts';
import { LogBook, SECRET } from '../e2e/harness.ts';
import { CHROMIUM } from './chromium.ts';
import { launched, openPage, violations } from './live-page.ts';

const FORM = {
  type: 'object' as const,
  properties: { day: { type: 'string' as const, title: 'Day' } },
  required: ['day'],
};

function build(): McpServer {
  const server = new McpServer({ name: 'booking', version: '1' });
  server.registerTool('book', {}, async () => {
    const { action, content } = await server.server.elicitInput({ message: 'When?', requestedSchema: FORM });
    return { content: [{ type: 'text', text: `${action} ${content?.day}` }] };
  });
  return server;
}

describe.skipIf(CHROMIUM.down)(`the pairing page in ${CHROMIUM.name}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launched();
  });
  afterAll(() => browser?.close());

  let server: Server;
  let origin = '';
  let code = '';
  let logger: LogBook;
  let link = '';
  /** Calls the tool, as its agent does. */
  const call = async (): Promise<string> =>
    textOf(await post(`${origin}/mcp`, { tool: 'book', capabilities: {} }));
  beforeEach(async () => {
    logger = new LogBook();
    server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const page = new URL(`${origin}/ask`);
    const print = (shown: string): void => {
      code = shown;
    };
    const pairing = new Pairing({ page, print, logger });
    pairing.start();
    const handler = createAwaitHandler(build, {
      secrets: [SECRET],
      logger,
      principal: () => LOCAL,
      ask: { page: page.href, authorize: pairing.authorize, person: () => LOCAL },
    });
    const listener = toNodeHandler(handler);
    server.on('request', (req, res) => {
      if (pairing.isFor(req)) void pairing.exchange(req, res);
      else void listener(req, res);
    });
    link = /http\S+/.exec(await call())?.[0] ?? '';
    return async () => {
      server.closeAllConnections();
      await handler.close();
      await new Promise((resolve) => server.close(resolve));
    };
  });

  async function type(page: Page, typed: string): Promise<void> {
    // It has the focus.
    await expect.poll(() => page.evaluate(() => document.activeElement?.id)).toBe('code');
    await page.keyboard.type(typed);
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
  }

  it.each([
    ['light', false],
    ['dark', false],
    ['light', true],
    ['dark', true],
  ] as const)('%s, a code refused: %s: nothing that axe finds at 390 px', async (colorScheme, isWrong) => {
    const width = 390;
    const { page, requests } = await openPage(browser, link, {
      viewport: { width, height: 800 },
      colorScheme,
    });
    if (isWrong) await type(page, 'AAAA-AAAA');
    await expect.poll(() => page.title()).toBe(`${isWrong ? 'Error: ' : ''}Pair this browser`);
    expect(requests.every((url) => url.startsWith(`${origin}/ask`))).toBe(true);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
    expect(await page.evaluate(() => getComputedStyle(document.body).margin)).toBe('0px');
    const back = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    expect(back).toBe(colorScheme === 'dark' ? 'rgb(23, 22, 20)' : 'rgb(253, 253, 252)');
    const button = await page.getByRole('button', { name: 'Pair' }).boundingBox();
    expect(button?.height).toBeGreaterThanOrEqual(44);
    expect(await violations(page)).toEqual([]);
    await page.close();
  });

  it('pairs by keyboard alone, without script, and leads to the question and its answer', async () => {
    const { page } = await openPage(browser, link, { javaScriptEnabled: false });
    await type(page, code.toLowerCase().replace('-', ' '));
    await expect.poll(() => page.title()).toBe('book waits for your answer');
    expect(page.url()).toBe(link);
    const [cookie] = await page.context().cookies();
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Lax', path: '/ask' });
    await page.getByLabel('Day').focus();
    await page.keyboard.type('Monday');
    await page.keyboard.press('Tab');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    await expect.poll(() => page.title()).toBe('This was answered');
    expect(await page.locator('main').textContent()).toContain('go back to your assistant');
    expect(await call()).toBe('accept Monday');
    await page.close();
  });

  it('says how many tries are left, and takes no code after five wrong ones', async () => {
    const { page } = await openPage(browser, link);
    for (const left of ['4 tries are', '3 tries are', '2 tries are', 'One try is']) {
      await type(page, 'AAAA-AAAA');
      const alert = page.getByRole('alert');
      await expect.poll(() => alert.textContent()).toBe(`Error: This is not the code. ${left} left.`);
      expect(await page.evaluate(() => document.activeElement?.id)).toBe('code');
      expect(await page.getByLabel('Code').getAttribute('aria-describedby')).toBe('code-error');
    }
    await type(page, 'AAAA-AAAA');
    await expect.poll(() => page.title()).toBe('This browser is not paired');
    expect(await page.locator('form').count()).toBe(0);
    expect(await violations(page)).toEqual([]);
    // Another browser that has the right one now comes too late.
    const other = await openPage(browser, link);
    expect(await other.page.title()).toBe('This browser is not paired');
    const reply = await fetch(`${origin}/ask/pair`, {
      method: 'POST',
      body: new URLSearchParams({ code, back: link }),
      headers: { origin },
    });
    expect([reply.status, reply.headers.getSetCookie()]).toEqual([403, []]);
    expect(logger.lines.filter(({ message }) => message.includes('refused'))).toHaveLength(5);
    expect(logger.text).not.toContain(code);
    await Promise.all([page.close(), other.page.close()]);
  });

  it('gives a process on another port of its host nothing that opens a page', async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(link);
    await type(page, code);
    await expect.poll(() => page.title()).toBe('book waits for your answer');
    const heard: IncomingHttpHeaders[] = [];
    const thief = createServer(({ headers }, res) => {
      heard.push(headers);
      // Asks for a password, in the name of the page.
      res.writeHead(401, { 'www-authenticate': 'Basic realm="mcp-await", charset="UTF-8"' }).end('thief');
    });
    await new Promise<void>((resolve) => thief.listen(0, '127.0.0.1', resolve));
    const port = (thief.address() as AddressInfo).port;
    try {
      const tab = await context.newPage();
      await tab.goto(link.replace(/:\d+/, `:${port}`)).catch(() => undefined);
      await expect.poll(() => heard.length).toBeGreaterThan(0);
      const { cookie = '' } = heard[0] ?? {};
      // It is the cookie, which browsers send to each port.
      expect(cookie).toMatch(/^mcp-await-pair-/);
      expect(heard.map(({ authorization }) => authorization).filter(Boolean)).toEqual([]);
      for (const url of [link, `${origin}/ask`]) {
        const reply = await fetch(url, { headers: { cookie } });
        expect([reply.status, await reply.text()]).toEqual([401, expect.not.stringContaining('When?')]);
      }
      const body = new URLSearchParams({ action: 'accept', 'field.day': 'Friday' });
      const answer = await fetch(link, { method: 'POST', headers: { cookie, origin }, body });
      expect(answer.status).toBe(401);
      // The person's browser still can: a link, and the list above it.
      await page.goto(link);
      expect(await page.title()).toBe('book waits for your answer');
      await page.goto(`${origin}/ask`);
      expect(await page.locator('main').textContent()).toContain('When?');
    } finally {
      thief.closeAllConnections();
      thief.close();
      await context.close();
    }
  });

  it('lets no other site frame the pages, read them, or post their forms', async () => {
    const { page } = await openPage(browser, link);
    await type(page, code);
    await expect.poll(() => page.title()).toBe('book waits for your answer');
    const forms = await page.content();
    const value = (name: string): string =>
      new RegExp(`name="${name}"[^>]*value="([^"]*)"`).exec(forms)?.[1] ?? '';
    const fields = ['key', 'token'].map((name) => `<input name="${name}" value="${value(name)}">`).join('');
    const evil = createServer((_req, res) => {
      res.writeHead(200, { 'content-type': 'text/html' });
      res.end(`<!doctype html><title>evil</title><iframe src="${link}"></iframe>
<form method="post" action="${link}">${fields}<input name="field.day" value="Friday"><button name="action" value="accept">Go</button></form>`);
    });
    await new Promise<void>((resolve) => evil.listen(0, '127.0.0.1', resolve));
    // Another site, which the browser's cookie does not follow on a POST.
    const site = `http://localhost:${(evil.address() as AddressInfo).port}`;
    try {
      await page.goto(site);
      await expect.poll(() => page.frames().length).toBe(2);
      const frame = page.frames()[1];
      await expect.poll(() => frame?.url()).toMatch(/^chrome-error:/);
      expect(
        await page.evaluate(
          (url) =>
            fetch(url, { credentials: 'include' }).then(
              (reply) => reply.text(),
              () => 'refused',
            ),
          link,
        ),
      ).toBe('refused');
      await Promise.all([page.waitForNavigation(), page.getByRole('button', { name: 'Go' }).click()]);
      expect(await page.locator('main').textContent()).not.toContain('answered');
      await page.goto(link);
      expect(await page.title()).toBe('book waits for your answer');
    } finally {
      evil.closeAllConnections();
      evil.close();
      await page.close();
    }
  });
});
