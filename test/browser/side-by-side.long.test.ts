/** The page of `mcp-await compare`, opened from its file in a real browser. */
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Browser, BrowserContextOptions } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { everyRevision } from '../../src/compare/index.ts';
import { pageOf } from '../../src/compare/page.ts';
import { scratch } from '../e2e/harness.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import late from '../fixtures/side-by-side/late-server.ts';
import { CHROMIUM } from './chromium.ts';
import { launched, openPage, violations } from './live-page.ts';

const CARDS = 'details.card > summary';

/** With `SCREENSHOTS=docs` the pictures of the documentation are made anew. */
const PICTURES = process.env.SCREENSHOTS;

describe.skipIf(CHROMIUM.down)(`the page of a comparison in ${CHROMIUM.name}`, () => {
  let browser: Browser;
  let url = '';
  let messages = 0;
  beforeAll(async () => {
    browser = await launched();
    const server = () => buildServer(() => {});
    const steps = [
      { list: 'tools' as const },
      { call: 'in-turn' },
      { call: 'at-once' },
      { call: 'echo', with: { word: '</script>' } },
    ];
    const comparison = await everyRevision(
      server,
      { name: 'names and </script> tags', steps },
      { callers: false },
    );
    messages = comparison.columns
      .filter(({ revision }) => revision === '2025-11-25' || revision === '2026-07-28')
      .reduce((sum, column) => sum + column.messages.length, 0);
    const path = join(scratch(), 'compare.html');
    writeFileSync(path, pageOf(comparison));
    url = pathToFileURL(path).href;
  });
  afterAll(() => browser.close());

  const open = async (options: BrowserContextOptions = {}, from = url) => {
    const opened = await openPage(browser, from, options);
    await opened.page.locator(CARDS).first().waitFor();
    return opened;
  };

  it('reaches and opens every message by keyboard alone, with no error and no request', async () => {
    const { page, errors, requests } = await open();
    expect(await page.locator(CARDS).count()).toBe(messages);
    const reached = new Set<string>();
    // From the last control before the messages on, Tab goes through all of them.
    await page.locator('input[type=search]').focus();
    for (let presses = 0; reached.size < messages && presses < 2 * messages; presses += 1) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate((cards) => {
        const { activeElement } = document;
        return activeElement?.matches(cards)
          ? String([...document.querySelectorAll(cards)].indexOf(activeElement))
          : '';
      }, CARDS);
      if (at !== '') reached.add(at);
    }
    expect(reached.size).toBe(messages);
    await page.keyboard.press('Enter');
    expect(await page.locator('details.card[open]').count()).toBe(1);
    expect(await page.getByRole('status').textContent()).toMatch(/Opened 20/);
    // What scrolls is reached, too.
    await page.keyboard.press('Tab');
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('PRE');
    expect([errors, requests]).toEqual([[], [url]]);
    await page.close();
  });

  it('goes from message to message with the arrow keys', async () => {
    const { page } = await open();
    const current = (): Promise<string> =>
      page.evaluate(() => {
        const card = document.activeElement?.closest<HTMLElement>('details.card');
        return `${card?.dataset.lane} ${card?.querySelector('.kind')?.textContent?.slice(2)}`;
      });
    await page.locator(`section[aria-labelledby="step-1"] ${CARDS}`).first().focus();
    expect(await current()).toBe('0 request');
    await page.keyboard.press('ArrowRight');
    expect(await current()).toBe('1 request');
    await page.keyboard.press('ArrowDown');
    expect(await current()).toBe('1 ask');
    await page.keyboard.press('ArrowLeft');
    expect(await current()).toBe('0 ask');
    await page.keyboard.press('End');
    expect(await current()).toMatch(/result$/);
    await page.close();
  });

  it('marks what differs from the neighbour, filters, and searches', async () => {
    const { page } = await open();
    const ask = page.locator('section[aria-labelledby="step-1"] details.card.ask[data-lane="1"]').first();
    await ask.locator('summary').click();
    expect(await ask.locator('mark').count()).toBeGreaterThan(0);
    expect(await ask.locator('pre').textContent()).toContain('inputRequests');
    await page.getByLabel('answer', { exact: true }).uncheck();
    expect(await page.locator('details.card.answer').count()).toBe(0);
    await page.getByRole('checkbox', { name: 'DRAFT-SEP-1858' }).check();
    expect(await page.locator('details.card[data-lane="2"]').count()).toBeGreaterThan(0);
    await page.getByRole('searchbox').fill('street?');
    const shown = await page.locator(CARDS).allTextContents();
    expect(shown.length).toBeGreaterThan(0);
    expect(shown.every((text) => text.includes('street?'))).toBe(true);
    expect(await page.getByRole('status').textContent()).toMatch(
      /^\d+ of \d+ messages shown, on 3 of 9 columns/,
    );
    await page.close();
  });

  it.each([
    ['wide', 'light', 1280],
    ['wide', 'dark', 1280],
    ['narrow', 'light', 400],
    ['narrow', 'dark', 400],
  ] as const)(
    '%s and %s: nothing that axe finds, and no sideways scrolling',
    async (size, colorScheme, width) => {
      const viewport = { width, height: 900 };
      const { page, errors } = await open({ colorScheme, viewport });
      for (const card of await page
        .locator('section[aria-labelledby="step-1"] details.card.ask summary')
        .all())
        await card.click();
      expect(await violations(page)).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      expect(errors).toEqual([]);
      if (PICTURES !== undefined) {
        mkdirSync(PICTURES, { recursive: true });
        await page.locator('section[aria-labelledby="step-1"] h2').scrollIntoViewIfNeeded();
        await page.screenshot({ path: join(PICTURES, `side-by-side-${size}-${colorScheme}.png`) });
      }
      await page.close();
    },
  );

  it('cuts a message of five megabytes, shows all of it on demand, and holds its text once', async () => {
    const large = (): McpServer => {
      const one = new McpServer({ name: 'large', version: '1.0.0' });
      const text = 'lorem '.repeat(840_000);
      one.registerTool('large', {}, () => ({ content: [{ type: 'text', text }] }));
      return one;
    };
    const revisions = ['2025-06-18', '2025-11-25', '2026-07-28'] as const;
    const comparison = await everyRevision(
      large,
      { steps: [{ call: 'large' }] },
      { callers: false, revisions },
    );
    const path = join(scratch(), 'large.html');
    writeFileSync(path, pageOf(comparison));
    expect(statSync(path).size).toBeLessThan(6_000_000);
    const { page, errors } = await open({ viewport: { width: 390, height: 800 } }, pathToFileURL(path).href);
    const card = page.locator('details.card.result').filter({ hasText: 'lorem' }).first();
    await card.locator('summary').click();
    const cell = card.locator('pre');
    expect((await cell.textContent())?.length).toBeLessThan(21_000);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await card.getByRole('button', { name: /^Show all \d+ kB$/ }).click();
    await expect.poll(async () => (await cell.textContent())?.length).toBeGreaterThan(5_000_000);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('names the tools that its scenario does not call', async () => {
    const revisions = ['2026-07-28'] as const;
    const options = { callers: false, revisions, isMade: true, uncalled: ['buy', 'mail'] };
    const path = join(scratch(), 'uncalled.html');
    writeFileSync(path, pageOf(await everyRevision(late, { steps: [{ list: 'tools' }] }, options)));
    const { page } = await open({}, pathToFileURL(path).href);
    await page.getByText('Not called, since not marked readOnlyHint: buy, mail.').waitFor();
    await page.close();
  });

  it('shows a column that differs beside one that does not, with the difference in words', async () => {
    const steps = [{ call: 'log_in' }, { list: 'tools' as const }];
    const comparison = await everyRevision(
      late,
      { steps },
      { callers: false, revisions: ['2025-06-18', '2025-11-25', '2026-07-28'] },
    );
    const path = join(scratch(), 'late.html');
    writeFileSync(path, pageOf(comparison));
    const { page } = await open({}, pathToFileURL(path).href);
    expect(await page.locator('.differences').textContent()).toContain(
      'does not list tools[order], which 2025-06-18 lists',
    );
    expect(await page.locator('fieldset input:checked').evaluateAll((boxes) => boxes.length)).toBe(2 + 7);
    expect(await page.getByRole('checkbox', { name: '2026-07-28' }).isChecked()).toBe(true);
    await page.close();
  });
});
