/** Says once what this machine lacks: the reporter does not show the names of suites that are skipped. */
import { CHROMIUM } from './browser/chromium.ts';
import { NATS, STORES } from './e2e/services.ts';

export default function setup(): void {
  for (const { name, down } of [...STORES, NATS, CHROMIUM])
    if (down) console.warn(`\nTests are skipped: ${name}\n`);
}
