/** A child that does not read: what waits for it is counted in an account, and ends it where that is broken off. */
import process from 'node:process';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { Budget } from '../../src/base/budget.ts';
import { ChildLink } from '../../src/proxy/child.ts';
import { FULL } from '../../src/proxy/link.ts';

const LINE = 15_000_000;
const SILENT = { debug: () => {}, info: () => {}, warn: () => {} };

it('is ended once what it has not read exceeds its share', async () => {
  const budget = new Budget(8_000_000);
  const command = { command: process.execPath, args: ['-e', 'setTimeout(() => {}, 600_000)'] };
  let end = (_reason: string): void => {};
  const ended = new Promise<string>((resolve) => {
    end = resolve;
  });
  const child = new ChildLink(command, 'busy', SILENT, (breakOff) => budget.open({}, breakOff), {
    message: () => {},
    ended: (reason) => end(reason),
  });
  const message = { jsonrpc: '2.0', method: 'notifications/x', params: { text: 'x'.repeat(1_500_000) } };
  child.send(message);
  child.send(message);
  expect(budget.bytes).toBeGreaterThan(2_500_000);
  child.send(message);
  child.send(message);
  expect(await ended).toContain(FULL);
  expect(budget.bytes).toBe(0);
});

it('is ended where it closes its output and lives: its calls would wait for ever', async () => {
  const budget = new Budget(8_000_000);
  const script = "require('fs').closeSync(1); setTimeout(() => {}, 600_000)";
  const ended = await new Promise<string>((resolve) => {
    const command = { command: process.execPath, args: ['-e', script] };
    new ChildLink(command, 'mute', SILENT, (breakOff) => budget.open({}, breakOff), {
      message: () => {},
      ended: resolve,
    });
  });
  expect(ended).toContain('it closed its output');
});

it('is read no faster for writing short lines that are no messages', async () => {
  const links: ChildLink[] = [];
  const writing = async (what: string, many: number): Promise<string> => {
    const script = `process.stdout.write(${JSON.stringify(what)}.repeat(${many}) + '{"jsonrpc":"2.0","id":1,"result":{}}\\n');
      setTimeout(() => {}, 600_000)`;
    const command = { command: process.execPath, args: ['-e', script] };
    const budget = new Budget(100_000_000);
    await new Promise<void>((resolve) => {
      const child = new ChildLink(command, 'short', SILENT, (breakOff) => budget.open({}, breakOff), {
        message: ({ id }) => id === 1 && resolve(),
        ended: () => {},
      });
      links.push(child);
    });
    return what;
  };
  const message = '{"jsonrpc":"2.0","method":"notifications/x"}\n';
  const others = ['x\n', '{\n'];
  // Ten seconds' worth of them, since a child may start late; unbounded, they are read in a moment.
  const first = await Promise.race([...others.map((what) => writing(what, 20_000)), writing(message, 2_000)]);
  for (const link of links) link.kill();
  expect(first).toBe(message);
});

it('keeps nothing of a long line that is no message', async () => {
  const lines = `process.stdout.write('q'.repeat(${LINE}) + '\\n'); setTimeout(() => {}, 600_000)`;
  const command = { command: process.execPath, args: ['-e', lines] };
  const logged: unknown[] = [];
  const logger = {
    ...SILENT,
    warn: (_message: string, detail?: object) => void logged.push(Object.keys(detail ?? {})),
  };
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const used = (): number => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = used();
  const children = Array.from(
    { length: 4 },
    () =>
      new ChildLink(command, 'rubbish', logger, (breakOff) => new Budget(100_000_000).open({}, breakOff), {
        message: () => {},
        ended: () => {},
      }),
  );
  await expect.poll(() => logged).toHaveLength(children.length);
  await expect.poll(used).toBeLessThan(before + LINE);
  for (const child of children) child.kill();
});
