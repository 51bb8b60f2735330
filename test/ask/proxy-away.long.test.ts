/** A server behind the proxy that is away for a moment: what its calls were answered is not lost, and no outcome is made of it. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { afterEach, describe, expect, it } from 'vitest';
import { stdioHost } from '../../src/index.ts';
import { SECRET, type Served, scratch, serveHere } from '../e2e/harness.ts';
import { answer, ask, callAs, linkIn, SERVER } from './proxied.ts';

let served: Served;
afterEach(() => served.close());

describe('a server that cannot be reached for a moment', () => {
  const GONE = 'The server behind this one ended or cannot be started';
  let flag = '';
  let pidFile = '';
  let call: () => Promise<string>;
  const goes = (): void => {
    writeFileSync(flag, '');
    process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
  };

  async function begin(headers: Readonly<Record<string, string>>): Promise<void> {
    const folder = scratch();
    [flag, pidFile] = [join(folder, 'away'), join(folder, 'pid')];
    // It does not start as long as the file is there.
    const script = `test -e '${flag}' && exit 1; echo $$ > '${pidFile}'; exec '${process.execPath}' '${SERVER}'`;
    const host = stdioHost({ command: 'sh', args: ['-c', script], replay: 'allow' });
    served = await serveHere(host, { secrets: [SECRET], ask });
    call = await callAs('ann', served.url, 'writes', headers);
  }

  it('is called again with the answer that its user gave meanwhile', async () => {
    await begin({});
    const link = linkIn(await call(), served);
    goes();
    await answer(link);
    await expect(call()).rejects.toThrow(new RegExp(GONE, 'i'));
    rmSync(flag);
    await expect.poll(() => call().catch(String), { timeout: 20_000 }).toBe('Hello Ada');
  });

  it('is called once it can be, where the first request of a key could not reach it', async () => {
    await begin({ 'idempotency-key': 'one' });
    goes();
    await expect(call()).rejects.toThrow(new RegExp(GONE, 'i'));
    rmSync(flag);
    await expect.poll(() => call().catch(String), { timeout: 20_000 }).toMatch(/^NOT DONE YET/);
  });
});
