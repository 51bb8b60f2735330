/** The browser of the tests: Debian's, or the one that `CHROMIUM` names. */
import { existsSync } from 'node:fs';
import process from 'node:process';

const path = process.env.CHROMIUM ?? '/usr/bin/chromium';
const down = !existsSync(path);
if (down && process.env.MCP_AWAIT_REQUIRE_SERVICES === '1') {
  throw new Error(`there is no browser at ${path} (set CHROMIUM), and MCP_AWAIT_REQUIRE_SERVICES=1`);
}

export const CHROMIUM = {
  path,
  down,
  name: down ? `Chromium (skipped: there is none at ${path})` : 'Chromium',
};
