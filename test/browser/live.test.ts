/** `mcp-await compare --ui` in a real browser: a scenario run and answered by keyboard while a process is killed. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scratch } from '../e2e/harness.ts';
import { CHROMIUM } from './chromium.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;
const SERVER = new URL('../fixtures/asking-server.ts', import.meta.url).pathname;
/** With `SCREENSHOTS=docs` the pictures of the documentation are made anew. */
const PICTURES = process.env.SCREENSHOTS;

describe.skipIf(CHROMIUM.down)(`compare --ui in ${CHROMIUM.name}`, { timeout: 120_000 }, () => {
  let browser: Browser;
  let command: ChildProcess;
  let url = '';
  beforeAll(async () => {
    const scenario = join(scratch(), 'scenario.yaml');
    writeFileSync(scenario, 'steps: [{ call: in-turn }, { list: tools }]');
    const args = ['compare', SERVER, '--ui', '--scenario', scenario];
    const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
    command = child;
    for await (const line of createInterface({ input: child.stdout })) {
      url = /^open (\S+)$/.exec(line)?.[1] ?? '';
      if (url !== '') break;
    }
    browser = await chromium.launch({ executablePath: CHROMIUM.path, args: ['--no-sandbox'] });
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    const ended = new Promise((resolve) => command.once('exit', resolve));
    command.kill('SIGINT');
    expect(await ended).toBe(0);
  });

  const open = async (options: Parameters<Browser['newPage']>[0] = {}) => {
    const page = await browser.newPage(options);
    const errors: string[] = [];
    page.on('console', (message) => {
      if (message.type() === 'error') errors.push(message.text());
    });
    page.on('pageerror', (error) => errors.push(error.message));
    await page.goto(url);
    await page.getByRole('button', { name: 'Run' }).waitFor();
    return { page, errors };
  };

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
      const { page, errors } = await open({ colorScheme, viewport: { width, height: 900 } });
      const status = page.getByRole('status');
      const axe = async (): Promise<string[]> => {
        await page.evaluate(AXE);
        return page.evaluate(async () => {
          const { axe: run } = window as unknown as {
            axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
          };
          return (await run.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
        });
      };
      expect(await axe()).toEqual([]);
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
      expect(await axe()).toEqual([]);
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
      const outcomes = await page.locator('[aria-labelledby=outcomes] li').allTextContents();
      expect(outcomes[0]).toBe('Ann, a city, a street');
      expect(outcomes[1]).toContain('in-turn');
      expect(await page.locator('details.card').count()).toBeGreaterThan(6);
      expect(await axe()).toEqual([]);
      expect(errors).toEqual([]);
      await page.close();
    },
  );

  it('runs a single tool, and a URL that is asked for is a link, to be declined', async () => {
    const { page, errors } = await open();
    await page.getByLabel('What is run').selectOption('link');
    await page.getByRole('button', { name: 'Run' }).click();
    const link = page.getByRole('link');
    await link.waitFor();
    expect(await link.getAttribute('rel')).toBe('noopener noreferrer');
    await page.getByRole('button', { name: 'Decline' }).click();
    await page.getByRole('heading', { name: 'Outcomes' }).waitFor();
    expect(await page.locator('[aria-labelledby=outcomes] li').allTextContents()).toEqual(['link: decline']);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('cancels a question, and answers for a model', async () => {
    const { page, errors } = await open();
    const outcomes = page.locator('[aria-labelledby=outcomes] li');
    const run = async (tool: string): Promise<void> => {
      await page.getByLabel('What is run').selectOption(tool);
      await page.getByRole('button', { name: 'Run' }).click();
    };
    await run('one');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await expect.poll(() => outcomes.allTextContents()).toEqual(['Hello cancel']);
    await run('sample');
    await page.getByRole('textbox', { name: 'What the model says' }).fill('roses are red');
    await page.getByRole('button', { name: 'Answer' }).click();
    await expect.poll(() => outcomes.allTextContents()).toEqual(['roses are red']);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('takes the arguments of a tool in a form', async () => {
    const { page } = await open();
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
      fetch(`${url}kill`, { method: 'POST', body, headers: { ...headers, ...more } });
    expect((await kill({ origin: 'https://evil.example' })).status).toBe(403);
    expect((await kill({ origin: 'http://localhost:1' })).status).toBe(403);
    expect((await kill({})).status).toBe(403);
    const own = { origin: new URL(url).origin };
    expect((await kill({ ...own, 'content-type': 'text/plain' })).status).toBe(403);
    // A page whose name resolves to this machine reads nothing, either.
    const rebound = new Promise<number | undefined>((resolve) => {
      get(url, { headers: { host: 'evil.example' } }, ({ statusCode }) => resolve(statusCode));
    });
    expect(await rebound).toBe(421);
    const { page } = await open();
    await page.getByRole('button', { name: 'Kill process A' }).waitFor();
    await page.close();
  });
});
