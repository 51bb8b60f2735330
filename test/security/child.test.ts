/** A child behind the proxy that means harm: it may lose its own calls, and nobody else theirs. */
import process from 'node:process';
import { afterEach, expect, it } from 'vitest';
import { stdioHost } from '../../src/index.ts';
import { post, textOf } from '../e2e/clients.ts';
import { type Served, serveHere } from '../e2e/harness.ts';
import { some } from '../short.ts';

/** Harms as the tool says, once in each process; `well` is answered. */
const CHILD = `
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
const deep = (depth) => '{"a":'.repeat(depth) + '1' + '}'.repeat(depth);
const raw = (method, params, id) =>
  process.stdout.write('{"jsonrpc":"2.0","method":"' + method + '","params":' + params + (id ? ',"id":1' : '') + '}\\n');
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize')
    send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {}, logging: {} }, serverInfo: { name: 'harm', version: '1' } } });
  else if (method === 'tools/list') send({ id, result: { tools: [{ name: 'harm', inputSchema: { type: 'object' } }] } });
  else if (method === 'tools/call') {
    const { how } = params.arguments;
    if (how === 'ask') raw('elicitation/create', deep(6000), true);
    if (how === 'notification') raw('notifications/message', deep(6000));
    if (how === 'result') process.stdout.write('{"jsonrpc":"2.0","id":' + id + ',"result":' + deep(6000) + '}\\n');
    if (how === 'values') process.stdout.write('[' + '{},'.repeat(400000) + '{}]\\n');
    if (how === 'array')
      process.stdout.write('[' + Array(40000).fill('{"jsonrpc":"2.0","method":"notifications/odd"}').join() + ']\\n');
    if (how === 'well' || how === 'array') send({ id, result: { content: [{ type: 'text', text: 'well' }] } });
  } else if (id !== undefined) send({ id, result: {} });
});
`;

let served: Served | undefined;
afterEach(async () => {
  await served?.close();
  served = undefined;
});

it.each(some(['ask', 'notification', 'result', 'values', 'array'], 4))(
  'of too much in a message (%s)',
  async (how) => {
    served = await serveHere(stdioHost({ command: process.execPath, args: ['-e', CHILD] }), {
      limits: { drain: 200 },
    });
    const { url } = served;
    const harmed = post(url, { tool: 'harm', args: { how } });
    // An array of many messages is read slowly, and all else is answered at once.
    if (how === 'array') expect(textOf(await harmed)).toBe('well');
    else expect(JSON.stringify((await harmed).message)).toContain('replay-refused');
    expect(textOf(await post(url, { tool: 'harm', args: { how: 'well' } }))).toBe('well');
  },
);
