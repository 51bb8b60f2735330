/** `mcp-await compare --ui` in a real browser: forms of every schema, hard results, and processes that end. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHROMIUM } from './chromium.ts';
import { type LivePages, outcomes, run, serveLive, violations } from './live-page.ts';

const SERVER = new URL('../fixtures/side-by-side/forms-server.ts', import.meta.url).pathname;
/** A condition that is waited for; CI runs beside it. */
const SOON = { timeout: 30_000 };
const NARROW = { width: 390, height: 800 };

describe.skipIf(CHROMIUM.down)(`compare --ui with forms, in ${CHROMIUM.name}`, () => {
  let pages: LivePages;
  beforeAll(async () => {
    pages = await serveLive(SERVER, 'steps: [{ call: lines }]');
  });
  afterAll(() => pages.close());

  const width = (page: Page): Promise<number> => page.evaluate(() => document.documentElement.scrollWidth);

  it('works under both names of this machine', async () => {
    for (const name of ['127.0.0.1', 'localhost']) {
      const { page, errors } = await pages.open({}, pages.url.replace('127.0.0.1', name));
      await run(page, 'lines');
      await expect.poll(() => outcomes(page).allTextContents(), SOON).toEqual(['one\ntwo']);
      expect(errors).toEqual([]);
      await page.close();
    }
  });

  it('fills in the defaults of a tool, and does not send what nobody said', async () => {
    const { page } = await pages.open();
    await run(page, 'newsletter');
    await expect.poll(() => outcomes(page).allTextContents(), SOON).toEqual(['{"dryRun":true,"list":"all"}']);
    await page.getByRole('checkbox', { name: /^dryRun/ }).uncheck();
    await page.getByRole('combobox', { name: /^now/ }).selectOption('yes');
    await page.getByRole('button', { name: 'Run' }).click();
    await expect
      .poll(() => outcomes(page).allTextContents(), SOON)
      .toEqual(['{"dryRun":false,"list":"all","now":true}']);
    await page.close();
  });

  it.each(['light', 'dark'] as const)(
    'asks with a form of every schema, checks it, and keeps the focus (%s)',
    async (colorScheme) => {
      const { page, errors } = await pages.open({ viewport: NARROW, colorScheme });
      await run(page, 'form');
      const heading = page.getByRole('heading', { name: 'First line' });
      await heading.waitFor();
      // Line breaks are there.
      expect(await heading.evaluate((one) => (one as HTMLElement).innerText)).toBe('First line\nSecond line');
      const form = page.getByRole('form', { name: /First line/ });
      await form.getByLabel('elements').fill('earth');
      await form.getByLabel('when').fill('tomorrow');
      await form.getByLabel('tags').selectOption(['a', 'b', 'c']);
      await page.getByRole('button', { name: 'Accept' }).click();
      expect(await page.getByRole('alert').allTextContents()).toEqual([
        'This must be a date and time with its zone, such as 2026-01-31T12:00:00Z.',
        'Choose at most 2.',
      ]);
      expect(await violations(page)).toEqual([]);
      expect(await width(page)).toBeLessThanOrEqual(NARROW.width);
      await form.getByLabel('when').fill('2026-01-31T12:00:00Z');
      await form.getByLabel('tags').selectOption(['a', 'b']);
      await form.getByLabel('color').selectOption('green');
      await form.getByLabel('urgent').selectOption('no');
      await form.getByLabel('elements').press('Enter');
      await expect.poll(() => outcomes(page).count(), SOON).toBe(1);
      expect(JSON.parse((await outcomes(page).textContent()) ?? '')).toEqual({
        elements: 'earth',
        querySelectorAll: 'kept',
        dryRun: true,
        urgent: false,
        when: '2026-01-31T12:00:00Z',
        count: 2,
        share: 0.5,
        size: 'm',
        color: 'g',
        tags: ['a', 'b'],
      });
      expect(await page.evaluate(() => document.activeElement?.getAttribute('role'))).toBe('status');
      expect(errors).toEqual([]);
      await page.close();
    },
  );

  it('shows long names, long words, an image and five megabytes without sideways scrolling', async () => {
    const { page, errors } = await pages.open({ viewport: NARROW });
    const tools = [
      ['a_tool_with_a_name_of_fifty_four_characters_as_some_do', /^x{400}$/],
      ['image', /^image$/],
      ['large', /^y{20000}… \(cut/],
    ] as const;
    for (const [tool, outcome] of tools) {
      await run(page, tool);
      await expect
        .poll(() => outcomes(page).allTextContents(), SOON)
        .toEqual([expect.stringMatching(outcome)]);
      await page.getByText(`tools/call ${tool}`).first().waitFor();
      expect(await width(page)).toBeLessThanOrEqual(NARROW.width);
      expect(await page.evaluate(() => document.documentElement.scrollHeight)).toBeLessThan(40_000);
      if (tool === 'image') {
        const shown = page.getByRole('img', { name: 'Result of image' });
        expect(await shown.evaluate((one) => (one as HTMLImageElement).naturalWidth)).toBe(1);
      }
    }
    expect(errors).toEqual([]);
    await page.close();
  });

  it('says so when the server asks the same again', async () => {
    const { page } = await pages.open();
    await run(page, 'again');
    const age = page.getByRole('spinbutton', { name: /^age/ });
    await age.fill('5');
    await page.getByRole('button', { name: 'Accept' }).click();
    await page.getByText('The tool asks this again').waitFor();
    await age.fill('50');
    await page.getByRole('button', { name: 'Accept' }).click();
    await expect.poll(() => outcomes(page).allTextContents(), SOON).toEqual(['50']);
    await page.close();
  });

  it('quotes why the server rejects an answer, in the question that comes back or in the outcome', async () => {
    const { page, errors } = await pages.open();
    const why = 'data/mail must match format "email"';
    const answer = async (revision: string): Promise<void> => {
      await page.getByLabel('Revision').selectOption(revision);
      await run(page, 'address');
      await page.getByRole('textbox', { name: 'mail' }).fill('ann@home');
      await page.getByRole('button', { name: 'Accept' }).click();
    };
    await answer('2026-07-28');
    await page.getByText(`The server rejected the last answer, and asks again: ${why}`).waitFor();
    await page.getByRole('textbox', { name: 'mail' }).fill('ann@home.example');
    await page.getByRole('button', { name: 'Accept' }).click();
    await expect.poll(() => outcomes(page).allTextContents(), SOON).toEqual(['{"mail":"ann@home.example"}']);
    await answer('2025-11-25');
    await expect.poll(() => outcomes(page).textContent(), SOON).toContain(why);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('shows where a call waits, and how another process goes on with it once that is killed', async () => {
    const { page, errors } = await pages.open();
    await page.getByLabel('Revision').selectOption('2025-11-25');
    await run(page, 'order');
    await page.getByRole('heading', { name: 'Sure?' }).waitFor();
    const lines = (kind: string) => page.locator(`.happening.${kind}`);
    await expect
      .poll(() => lines('waits').allTextContents(), SOON)
      .toEqual([expect.stringMatching(/^[AB] asks “Sure\?” and keeps the tool waiting here$/)]);
    expect(await lines('step').allTextContents()).toEqual([
      expect.stringMatching(/^[AB] step reserve is done$/),
    ]);
    const [owner = ''] = (await lines('waits').first().textContent()) ?? '';
    const other = owner === 'A' ? 'B' : 'A';
    await page.getByRole('button', { name: `Kill process ${owner}` }).click();
    await expect.poll(() => lines('process').allTextContents(), SOON).toEqual([`${owner} is killed`]);
    await page.getByRole('button', { name: 'Accept' }).click();
    await page.getByRole('heading', { name: 'Really?' }).waitFor();
    expect(await lines('runs').last().textContent()).toBe(`${other} runs the tool again, from its start`);
    expect(await lines('journal').allTextContents()).toContain(`${other} step reserve (from the journal)`);
    expect(await violations(page)).toEqual([]);
    await page.getByRole('button', { name: `Start process ${owner}` }).click();
    await page.getByRole('button', { name: 'Accept' }).click();
    await expect.poll(() => outcomes(page).allTextContents(), SOON).toEqual(['order 7']);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('names an effect that it saw twice', async () => {
    const { page } = await pages.open();
    await run(page, 'mail');
    await page.getByRole('button', { name: 'Accept' }).click();
    await expect.poll(() => outcomes(page).count(), SOON).toBe(1);
    expect(await page.locator('.happening.effect').allTextContents()).toEqual([
      expect.stringMatching(/^[AB] wrote a file \(forms-server\.ts:\d+\) outside of a step$/),
      expect.stringMatching(/^[AB] wrote a file/),
    ]);
    const log = page.locator('.happening.log');
    await expect.poll(() => log.filter({ hasText: /^[AB] mailing$/ }).count(), SOON).toBe(2);
    await log
      .filter({ hasText: "warn: tool 'mail' used the file system (fs.promises.appendFile)" })
      .first()
      .waitFor();
    expect(await page.locator('.differences').textContent()).toContain(
      "outside of a step; it ran 2 times in one call. Put it into a step: await step('mail', () => …)",
    );
    await page.close();
  });

  it('shows a process that ended by itself, with its last lines, and starts it again', async () => {
    const { page } = await pages.open();
    await run(page, 'quit');
    const dead = page.getByRole('alert');
    await expect.poll(() => dead.textContent(), SOON).toContain('the disk is full');
    await expect.poll(() => page.getByRole('status').textContent(), SOON).toMatch(/^Ended/);
    const [name = ''] = /(?<=^Process )[AB]/.exec((await dead.textContent()) ?? '') ?? [];
    expect(await page.getByRole('button', { name: `Kill process ${name}` }).count()).toBe(0);
    await page.getByRole('button', { name: `Start process ${name}` }).click();
    await page.getByRole('button', { name: `Kill process ${name}` }).waitFor();
    expect(await dead.count()).toBe(0);
    await page.close();
  });
});
