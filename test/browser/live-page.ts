/** `mcp-await compare --ui` with a browser on its page, and what tests of any page do: errors, and axe's rules. */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { scratch } from '../e2e/harness.ts';
import { CHROMIUM } from './chromium.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const CLI = new URL('../../dist/src/cli/main.js', import.meta.url).pathname;

interface Opened {
  readonly page: Page;
  /** What its console and its scripts reported. */
  readonly errors: readonly string[];
  /** The URLs that it requested. */
  readonly requests: readonly string[];
}

export interface LivePages {
  readonly url: string;
  open(options?: BrowserContextOptions, from?: string): Promise<Opened>;
  /** Ends the command as Ctrl-C does. @returns its exit code */
  close(): Promise<unknown>;
}

/** Its pages wait as long as their test may: a page of megabytes takes minutes beside other work. */
export async function launched(...args: readonly string[]): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: CHROMIUM.path,
    args: ['--no-sandbox', ...args],
  });
  const newContext = browser.newContext.bind(browser);
  // `newPage` opens a context, too.
  browser.newContext = async (options) => {
    const context = await newContext(options);
    context.setDefaultTimeout(0);
    return context;
  };
  return browser;
}

/** @param scenario in YAML; without one the command makes it */
export async function serveLive(server: string, scenario?: string): Promise<LivePages> {
  const path = join(scratch(), 'scenario.yaml');
  if (scenario !== undefined) writeFileSync(path, scenario);
  const args = ['compare', server, '--ui', ...(scenario === undefined ? [] : ['--scenario', path])];
  const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  let url = '';
  for await (const line of createInterface({ input: child.stdout })) {
    url = /^open (\S+)$/.exec(line)?.[1] ?? '';
    if (url !== '') break;
  }
  const browser = await launched();
  return {
    url,
    open: async (options = {}, from = url) => {
      const opened = await openPage(browser, from, options);
      await opened.page.getByRole('button', { name: 'Run' }).waitFor();
      return opened;
    },
    close: async () => {
      await browser.close();
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGINT');
      return ended;
    },
  };
}

export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Opened> {
  const page = await browser.newPage(options);
  const errors: string[] = [];
  const requests: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('request', (request) => requests.push(request.url()));
  await page.goto(url);
  return { page, errors, requests };
}

export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    return (await axe.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
}

/** Runs a tool of the page. */
export async function run(page: Page, tool: string): Promise<void> {
  await page.getByLabel('What is run').selectOption(tool);
  await page.getByRole('button', { name: 'Run' }).click();
}

export const outcomes = (page: Page) => page.locator('[aria-labelledby=outcomes] li');
