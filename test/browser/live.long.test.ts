/** `mcp-await compare --ui` in a real browser: a scenario run and answered by keyboard while a process is killed. */
import { mkdirSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import process from 'node:process';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHROMIUM } from './chromium.ts';
import { type LivePages, outcomes, run, serveLive, violations } from './live-page.ts';

const SERVER = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
/** With `SCREENSHOTS=docs` the pictures of the documentation are made anew. */
const PICTURES = process.env.SCREENSHOTS;

describe.skipIf(CHROMIUM.down)(`compare --ui in ${CHROMIUM.name}`, () => {
  let pages: LivePages;
  beforeAll(async () => {
    pages = await serveLive(SERVER, 'steps: [{ call: in-turn }, { list: tools }]');
  });
  afterAll(async () => expect(await pages.close()).toBe(0));

  /** Tab, until the control of that name has the focus. */
  const tabTo = async (page: Page, name: string): Promise<void> => {
    for (let presses = 0; presses < 60; presses += 1) {
      const focused = await page.evaluate(() => {
        const { activeElement: at } = document;
        return at instanceof HTMLSelectElement ? (at.labels[0]?.textContent ?? '') : (at?.textContent ?? '');
      });
      if (focused === name) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`no Tab reaches ${name}`);
  };

  it.each([
    ['2026-07-28', 'light', 1280],
    ['2025-11-25', 'dark', 400],
  ] as const)(
    'runs a scenario on %s by keyboard, whose call goes on where a process is killed (%s)',
    async (revision, colorScheme, width) => {
      const { page, errors } = await pages.open({ colorScheme, viewport: { width, height: 900 } });
      const status = page.getByRole('status');
      expect(await violations(page)).toEqual([]);
      await tabTo(page, 'Revision');
      await page.keyboard.type(revision);
      await tabTo(page, 'Run');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'name?' }).waitFor();
      expect(await status.textContent()).toContain('The server asks: name?');

      // Its field has the focus; an empty one is told at the field.
      await page.keyboard.press('ControlOrMeta+a');
      await page.keyboard.press('Delete');
      await page.keyboard.press('Enter');
      const field = page.getByRole('textbox', { name: 'name' });
      expect(await page.getByRole('alert').textContent()).not.toBe('');
      expect(await field.getAttribute('aria-invalid')).toBe('true');
      expect(await violations(page)).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      if (PICTURES !== undefined) {
        mkdirSync(PICTURES, { recursive: true });
        await page.screenshot({
          path: join(PICTURES, `live-${width === 400 ? 'narrow' : 'wide'}-${colorScheme}.png`),
        });
      }
      await page.keyboard.type('Ann');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'city?' }).waitFor();

      const buttons = page.getByRole('button', { name: /^Kill process/ });
      const [last = ''] = /[AB](?=\.$)/.exec((await status.textContent()) ?? '') ?? [];
      const other = last === 'A' ? 'B' : 'A';
      await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
      await tabTo(page, `Kill process ${last}`);
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: `Start process ${last}` }).waitFor();
      expect(await buttons.allTextContents()).toEqual([`Kill process ${other}`]);
      await tabTo(page, 'Accept');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'street?' }).waitFor();
      expect(await status.textContent()).toContain(`the last with process ${other}.`);
      await tabTo(page, `Start process ${last}`);
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: `Kill process ${last}` }).waitFor();
      await tabTo(page, 'Accept');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Outcomes' }).waitFor();
      const [first, second] = await outcomes(page).allTextContents();
      expect(first).toBe('Ann, a city, a street');
      expect(second).toContain('in-turn');
      expect(await page.locator('details.card').count()).toBeGreaterThan(6);
      expect(await violations(page)).toEqual([]);
      expect(errors).toEqual([]);
      await page.close();
    },
  );

  it('runs a single tool, and a URL that is asked for is a link, to be declined', async () => {
    const { page, errors } = await pages.open();
    await run(page, 'link');
    const link = page.getByRole('link');
    await link.waitFor();
    expect(await link.getAttribute('rel')).toBe('noopener noreferrer');
    await page.getByRole('button', { name: 'Decline' }).click();
    await page.getByRole('heading', { name: 'Outcomes' }).waitFor();
    expect(await outcomes(page).allTextContents()).toEqual(['link: decline']);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('cancels a question, and answers for a model', async () => {
    const { page, errors } = await pages.open();
    await run(page, 'one');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await expect.poll(() => outcomes(page).allTextContents()).toEqual(['Hello cancel']);
    await run(page, 'sample');
    await page.getByRole('textbox', { name: 'What the model says' }).fill('roses are red');
    await page.getByRole('button', { name: 'Answer' }).click();
    await expect.poll(() => outcomes(page).allTextContents()).toEqual(['roses are red']);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('names the tools that no scenario calls', async () => {
    const ending = new URL('../fixtures/side-by-side/ending-server.ts', import.meta.url).pathname;
    const unwritten = await serveLive(ending);
    const { page, errors } = await unwritten.open();
    const notice = 'Not called, since not marked readOnlyHint: quit, crash, stuck, slow, refuse, add.';
    await page.getByText(notice).waitFor();
    expect(await page.getByLabel('What is run').locator('option').first().textContent()).toBe(
      'the scenario (3 steps)',
    );
    expect(errors).toEqual([]);
    expect(await unwritten.close()).toBe(0);
    const { page: written } = await pages.open();
    expect(await written.getByText('Not called').count()).toBe(0);
    await written.close();
  });

  it('takes the arguments of a tool in a form', async () => {
    const { page } = await pages.open();
    await page.getByLabel('What is run').selectOption('echo');
    await page.getByRole('textbox', { name: 'word' }).fill('hello');
    await page.getByRole('button', { name: 'Run' }).click();
    const request = page.locator('details.card.request').filter({ hasText: 'tools/call echo' });
    await request.locator('summary').click();
    expect(await request.locator('pre').textContent()).toContain('"word": "hello"');
    await page.close();
  });

  it('does nothing for another page, and answers under no other name', async () => {
    const body = JSON.stringify({ process: 'A' });
    const headers = { 'content-type': 'application/json' };
    const kill = (more: Record<string, string>): Promise<Response> =>
      fetch(`${pages.url}kill`, { method: 'POST', body, headers: { ...headers, ...more } });
    expect((await kill({ origin: 'https://evil.example' })).status).toBe(403);
    expect((await kill({ origin: 'http://localhost:1' })).status).toBe(403);
    expect((await kill({})).status).toBe(403);
    const own = { origin: new URL(pages.url).origin };
    expect((await kill({ ...own, 'content-type': 'text/plain' })).status).toBe(403);
    // A page whose name resolves to this machine reads nothing, either.
    const rebound = new Promise<number | undefined>((resolve) => {
      get(pages.url, { headers: { host: 'evil.example' } }, ({ statusCode }) => resolve(statusCode));
    });
    expect(await rebound).toBe(421);
    const { page } = await pages.open();
    await page.getByRole('button', { name: 'Kill process A' }).waitFor();
    await page.close();
  });
});
