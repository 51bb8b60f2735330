/** The headers that a server's tools want are kept, whatever its list says, in bounded memory and time. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { RequestHeaders } from '../../src/client/modern/headers.ts';

const marked = (header: string) => ({ type: 'string', 'x-mcp-header': header });
const tool = (name: string, properties: object) => ({ name, inputSchema: { type: 'object', properties } });
const call = (name: string, args: object) => ({
  jsonrpc: '2.0' as const,
  id: 1,
  method: 'tools/call',
  params: { name, arguments: args },
});

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
function heap(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

it('hold little, however many tools a server names', () => {
  const headers = new RequestHeaders();
  const before = heap();
  for (let list = 0; list < 20; list += 1) {
    const tools = Array.from({ length: 200 }, (_, nth) =>
      tool(`${list}-${nth}-${'n'.repeat(10_000)}`, nth % 2 === 0 ? {} : { a: marked('A') }),
    );
    headers.learn(JSON.parse(JSON.stringify({ tools })), () => {});
  }
  expect(heap() - before).toBeLessThan(12_000_000);
  headers.learn({ tools: [tool('last', { a: marked('A') })] }, () => {});
  expect(headers.of(call('last', { a: 'x' }))['mcp-param-a']).toBe('x');
});

it('hold little of a tool whose arguments are many and deep', () => {
  const many = Object.fromEntries(Array.from({ length: 20_000 }, (_, nth) => [`q${nth}`, marked(`h${nth}`)]));
  let schema: Record<string, unknown> = many;
  for (let deep = 0; deep < 200; deep += 1) schema = { k: { type: 'object', properties: schema } };
  const headers = new RequestHeaders();
  const before = heap();
  const dropped: string[] = [];
  const { tools } = headers.learn({ tools: [tool('deep', schema), tool('other', {})] }, (name) =>
    dropped.push(name),
  );
  expect(heap() - before).toBeLessThan(4_000_000);
  expect(dropped).toEqual(['deep']);
  expect(tools).toHaveLength(1);
});

it('are those of the list that came last', () => {
  const headers = new RequestHeaders();
  headers.learn({ tools: [tool('one', { a: marked('A') })] }, () => {});
  expect(headers.of(call('one', { a: 'x' }))).toMatchObject({ 'mcp-param-a': 'x' });
  headers.learn({ tools: [tool('one', { a: { type: 'string' } })] }, () => {});
  expect(headers.of(call('one', { a: 'x' }))).not.toHaveProperty('mcp-param-a');
});
