/** The pages of an ask in a real browser, under the policy that they are served with. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { STYLE_HASH } from '../../src/ask/page/document.ts';
import { readForm } from '../../src/ask/page/form.ts';
import { type AskView, askPage, listPage, notePage } from '../../src/ask/page/pages.ts';
import { some } from '../short.ts';
import { CHROMIUM } from './chromium.ts';
import { launched, openPage, violations } from './live-page.ts';

const POLICY = `default-src 'none'; style-src ${STYLE_HASH}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'`;
const ATTACK = `<script>document.title = 'attacked'</script>"'\u202e`;
const LONG = 'w'.repeat(300);
const months = Array.from({ length: 12 }, (_, nth) => `month ${nth + 1}`);

const schema = {
  type: 'object',
  properties: {
    name: {
      type: 'string',
      title: 'Your name',
      description: `First ${ATTACK}\nSecond ${LONG}`,
      minLength: 2,
    },
    lines: { type: 'string', default: '\none\ntwo' },
    mail: { type: 'string', title: 'Email', format: 'email' },
    site: { type: 'string', format: 'uri' },
    day: { type: 'string', format: 'date' },
    when: { type: 'string', format: 'date-time' },
    age: { type: 'integer', title: 'Age', minimum: 18, maximum: 130 },
    share: { type: 'number', default: 0.5 },
    sure: { type: 'boolean', title: 'Sure?' },
    size: { type: 'string', title: 'Size', enum: ['s', 'l'], enumNames: ['Small', `Large ${LONG}`] },
    color: {
      type: 'string',
      title: 'Color',
      oneOf: [
        { const: 'a\nb', title: 'Red' },
        { const: '', title: 'None' },
      ],
    },
    month: { type: 'string', title: 'Month', enum: months },
    tags: {
      type: 'array',
      title: 'Tags',
      items: {
        anyOf: [
          { const: 'x', title: 'X' },
          { const: 'y', title: ATTACK },
        ],
      },
    },
    password: { type: 'string', title: 'Password' },
    nested: { type: 'object', title: 'Nested' },
  },
  required: ['name', 'sure', 'color'],
};

const view: AskView = {
  server: 'files',
  tool: 'delete_folder',
  client: `host ${ATTACK}`,
  asked: Date.UTC(2026, 6, 28, 9, 5),
  expires: Date.UTC(2026, 6, 29, 9, 5),
  args: { path: `/home/\u202egnp.exe`, more: Array.from({ length: 60 }, () => ATTACK), long: LONG },
  asks: [
    { key: 'q1', message: `Really delete it?\n${ATTACK} ${LONG}`, schema },
    { key: 'q2', message: 'And this?', schema: { type: 'object', properties: {} } },
  ],
  action: '/answer',
  tokens: { q1: 'sealed-1', q2: 'sealed-2' },
  list: '/list',
};
const errors = {
  name: 'Enter a value.',
  age: 'Enter 18 or more.',
  sure: 'Choose one.',
  nested: 'No.',
  '': 'All wrong.',
};
const open = { href: '/ask', client: 'host', asked: 9, expires: 10, args: JSON.stringify(view.args) };
const group = {
  server: 's',
  tool: 'delete_folder',
  asks: [open, open].map((one) => ({ ...one, message: ATTACK })),
};
const PAGES: Readonly<Record<string, string>> = {
  '/ask': askPage(view),
  '/wrong': askPage({ ...view, given: { key: 'q1', form: new URLSearchParams('field.age=5'), errors } }),
  '/list': listPage({ person: 'ann@example.com', groups: [group, { ...group, tool: LONG }] }),
  '/empty': listPage({ person: 'ann', groups: [] }),
  '/note': notePage({ title: `Answered ${ATTACK}`, text: [ATTACK, LONG], list: '/list' }),
};

describe.skipIf(CHROMIUM.down)(`the page of an ask in ${CHROMIUM.name}`, () => {
  let browser: Browser;
  let server: Server;
  let url = '';
  /** Of the last form: its fields, and the header `Origin`. */
  let posted: URLSearchParams | undefined;
  let origin: string | undefined;
  beforeAll(async () => {
    browser = await launched();
    server = createServer(async (req, res) => {
      if (req.method === 'POST') {
        posted = new URLSearchParams(await textOf(req));
        origin = req.headers.origin;
      }
      const page = req.method === 'POST' ? PAGES['/note'] : PAGES[req.url ?? ''];
      res.writeHead(page === undefined ? 404 : 200, {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy': POLICY,
        'referrer-policy': 'same-origin',
      });
      res.end(page);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(async () => {
    await browser?.close();
    server?.close();
  });
  beforeEach(() => {
    posted = undefined;
  });

  const show = (path: string, options: BrowserContextOptions = {}) => openPage(browser, url + path, options);
  /** Playwright's own `evaluate` works where the page's scripts do not run. */
  const focused = (page: Page): Promise<string> =>
    page.evaluate(() => {
      const { name = '', value = '', id } = document.activeElement as HTMLInputElement;
      return name === 'action' ? value : name || id;
    });
  /** Presses Tab until the focus is at a control. */
  async function tabTo(page: Page, control: string): Promise<void> {
    for (let presses = 0; presses < 100; presses += 1) {
      await page.keyboard.press('Tab');
      if ((await focused(page)) === control) return;
    }
    throw new Error(`Tab does not reach ${control}`);
  }

  it.each(
    some(
      Object.keys(PAGES).flatMap((path) =>
        (['light', 'dark'] as const).flatMap((scheme) =>
          [390, 1200].map((width) => [path, scheme, width] as const),
        ),
      ),
      2,
    ),
  )(
    '%s, %s, %i px: nothing that axe finds, no error, no sideways scrolling',
    async (path, colorScheme, width) => {
      // Before axe runs: what it adds to the page would be counted, too.
      const size = { viewport: { width, height: 800 }, colorScheme };
      const { page, errors: found, requests } = await show(path, size);
      expect([found, requests]).toEqual([[], [url + path]]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      expect(await page.title()).not.toBe('attacked');
      // The style is applied: another hash would leave the browser's own margin.
      expect(await page.evaluate(() => getComputedStyle(document.body).margin)).toBe('0px');
      const back = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      expect(back).toBe(colorScheme === 'dark' ? 'rgb(23, 22, 20)' : 'rgb(253, 253, 252)');
      expect(await violations(page)).toEqual([]);
      await page.close();
    },
  );

  it('is filled in and submitted by keyboard alone, without script', async () => {
    const { page, errors: found } = await show('/ask', { javaScriptEnabled: false });
    await tabTo(page, 'field.name');
    await page.keyboard.type('Ann "<b>" 👩');
    // Enter in a field is none of the three actions.
    await page.keyboard.press('Enter');
    await tabTo(page, 'field.lines');
    await page.keyboard.press('Control+End');
    await page.keyboard.press('Enter');
    await page.keyboard.type('three');
    await tabTo(page, 'field.mail');
    await page.keyboard.type('ann@example.com');
    await tabTo(page, 'field.age');
    await page.keyboard.type('42');
    await tabTo(page, 'field.sure');
    await page.keyboard.press('Space');
    await tabTo(page, 'field.size');
    await page.keyboard.press('ArrowUp');
    await tabTo(page, 'field.color');
    await page.keyboard.press('Space');
    await tabTo(page, 'field.month');
    await page.keyboard.type('month 12');
    await tabTo(page, 'field.tags');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Space');
    expect([page.url(), posted]).toEqual([`${url}/ask`, undefined]);
    await tabTo(page, 'accept');
    await Promise.all([page.waitForURL(`${url}/answer`), page.keyboard.press('Enter')]);
    expect(['token', 'key', 'action'].map((name) => posted?.getAll(name))).toEqual([
      ['sealed-1'],
      ['q1'],
      ['accept'],
    ]);
    expect(origin).toBe(url);
    expect(readForm(schema, posted ?? new URLSearchParams())).toEqual({
      content: {
        name: 'Ann "<b>" 👩',
        lines: '\none\ntwo\nthree',
        mail: 'ann@example.com',
        age: 42,
        share: 0.5,
        sure: true,
        size: 'l',
        color: 'a\nb',
        month: 'month 12',
        tags: ['y'],
      },
    });
    expect(found).toEqual([]);
    await page.close();
  });

  it.each(['decline', 'cancel'])('takes %s by keyboard with required fields empty', async (action) => {
    const { page } = await show('/ask', { javaScriptEnabled: false });
    await tabTo(page, action);
    await Promise.all([page.waitForURL(`${url}/answer`), page.keyboard.press('Space')]);
    expect([posted?.get('action'), posted?.get('key')]).toEqual([action, 'q1']);
    await page.close();
  });

  it('does not submit an answer without its required fields', async () => {
    const { page } = await show('/ask', { javaScriptEnabled: false });
    await tabTo(page, 'accept');
    await page.keyboard.press('Enter');
    await page.waitForTimeout(300);
    expect([page.url(), posted]).toEqual([`${url}/ask`, undefined]);
    expect(await focused(page)).toBe('field.name');
    await page.close();
  });

  it('answers the second of two asks alone', async () => {
    const { page } = await show('/ask', { javaScriptEnabled: false });
    await page
      .getByRole('form', { name: 'Question 2 of 2' })
      .getByRole('button', { name: 'Submit' })
      .press('Enter');
    await page.waitForURL(`${url}/answer`);
    expect(posted?.toString()).toBe('token=sealed-2&key=q2&action=accept');
    await page.close();
  });

  it('begins at what was wrong, from where links go to the fields', async () => {
    const { page } = await show('/wrong', { javaScriptEnabled: false });
    expect(await page.evaluate(() => document.activeElement?.getAttribute('role'))).toBe('alert');
    await page.getByRole('link', { name: 'Age: Enter 18 or more.' }).press('Enter');
    await page.keyboard.press('Tab');
    expect(await focused(page)).toBe('field.share');
    const age = page.getByLabel('Age (optional)');
    expect(await age.inputValue()).toBe('5');
    expect(await age.evaluate((one) => one.matches(':focus-visible'))).toBe(false);
    await page.keyboard.press('Shift+Tab');
    expect(await age.evaluate((one) => getComputedStyle(one).outlineStyle)).toBe('solid');
    await page.close();
  });

  it('shows a character that turns the direction as its number', async () => {
    const { page } = await show('/ask');
    expect(await page.locator('pre').first().textContent()).toContain('"path": "/home/<U+202E>gnp.exe"');
    await page.close();
  });
});
