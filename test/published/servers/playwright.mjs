// Its browser is Chromium (CHROMIUM), which it starts in the call that asks its client for roots.
import process from 'node:process';
import { createConnection } from '@playwright/mcp';

const launchOptions = { executablePath: process.env.CHROMIUM, headless: true, args: ['--no-sandbox'] };

export default () => createConnection({ browser: { isolated: true, launchOptions } });
