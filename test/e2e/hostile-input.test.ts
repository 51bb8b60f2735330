/** Whatever is parsed of what strangers send: prototype keys, deep nesting, huge numbers, lone surrogates, bombs. */
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openStore } from '../../src/checkpoint/open-store.ts';
import { buildServer } from '../fixtures/asking-server.ts';
import { accept, modern, modernHeaders, post, send, textOf } from './clients.ts';
import { SECRET, type Served, serveHere } from './harness.ts';
import { STORES } from './services.ts';

const deep = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;

/** Text of JSON values that parsers, prototypes and stores have stumbled over. */
const HOSTILE: readonly (readonly [string, string])[] = [
  ['a prototype', '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}'],
  ['a prototype in a list', '[{"__proto__":{"polluted":true}}]'],
  ['names of methods', '{"toJSON":1,"then":1,"toString":1,"hasOwnProperty":1,"valueOf":null}'],
  ['nesting', deep(400)],
  ['nesting beyond all bounds', deep(100_000)],
  ['a number that is infinite', '1e400'],
  ['a number that is none', '-0.0e-400'],
  ['a number with many digits', '9'.repeat(2_000)],
  ['a lone surrogate', '"\\ud800 \\udc00\\udc00"'],
  ['a null character', '"\\u0000"'],
  ['line separators', '"\\u2028\\u2029\\r\\n\\n\\ndata: x"'],
  ['a long name', `{"${'k'.repeat(100_000)}":1}`],
];

for (const { name: store, down, url: place } of STORES) {
  describe.skipIf(down)(`hostile input, on ${store}`, () => {
    let served: Served;
    beforeAll(async () => {
      const keyv = await openStore(place());
      served = await serveHere(() => buildServer(() => {}), { secrets: [SECRET], store: keyv });
    });
    afterAll(async () => {
      await served.close();
      const client = Object.prototype as { polluted?: unknown };
      expect(client.polluted).toBeUndefined();
    });

    /** It is served, or refused in words of the protocol; it is never an internal error. */
    const survives = async (body: string, headers: Record<string, string>): Promise<void> => {
      const reply = await send(served.url, body, { headers });
      expect(reply.status).toBeLessThan(500);
      expect(reply.message.error?.code).not.toBe(-32603);
      expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    };

    const envelope = JSON.stringify({
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'hostile', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
    });
    const call = (more: string): string =>
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"word":"x"},"_meta":${envelope}${more}}}`;

    it('has very many arguments', async () => {
      const names = Array.from({ length: 20_000 }, (_, nth) => `"${nth}":1`).join();
      const reply = await send(served.url, call(`,"arguments":{${names}}`), {
        headers: modernHeaders('tools/call', 'echo'),
      });
      expect([reply.status, reply.message.error?.message]).toEqual([
        413,
        'Payload Too Large: the body holds more than 10000 different names',
      ]);
    });

    it.each(HOSTILE)('is %s, wherever it stands', async (_name, text) => {
      const headers = modernHeaders('tools/call', 'echo');
      const first = await post(served.url, { tool: 'echo', args: { word: 'x' } });
      const state = JSON.stringify(first.state);
      const key = first.keys[0] ?? '';
      for (const body of [
        text,
        `[${text}]`,
        `{"jsonrpc":"2.0","id":${text},"method":"tools/call","params":${text}}`,
        `{"jsonrpc":"2.0","id":1,"method":${text},"params":{}}`,
        call(`,"arguments":${text}`),
        call(`,"requestState":${text}`),
        call(`,"inputResponses":${text}`),
        call(`,"requestState":${state},"inputResponses":${text}`),
        call(`,"requestState":${state},"inputResponses":{"${key}":${text}}`),
        call(
          `,"requestState":${state},"inputResponses":{"${key}":{"action":"accept","content":{"name":${text}}}}`,
        ),
        call(`,"requestState":${state},"inputResponses":{"${key}":{"action":"accept","content":${text}}}`),
      ]) {
        await survives(body, headers);
      }
      for (const body of [
        `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":${text},"clientInfo":${text}}}`,
        `{"jsonrpc":"2.0","id":${text},"result":${text}}`,
        `{"jsonrpc":"2.0","method":"notifications/cancelled","params":${text}}`,
      ]) {
        await survives(body, {});
      }
    });

    it('is a number that JSON cannot hold', async () => {
      const body = call('').replace('"word":"x"', '"word":"x","amount":[1e999]');
      const reply = await send(served.url, body, { headers: modernHeaders('tools/call', 'echo') });
      expect([reply.status, reply.message.error?.code]).toEqual([400, -32602]);
    });

    it('is any JSON in place of answers', async () => {
      const { state, keys } = await post(served.url, { tool: 'echo', args: { word: 'x' } });
      const headers = modernHeaders('tools/call', 'echo');
      await fc.assert(
        fc.asyncProperty(fc.json({ noUnicodeString: false }), async (text) => {
          const answers = `{"${keys[0]}":{"action":"decline","_meta":${text}}}`;
          await survives(
            call(`,"requestState":${JSON.stringify(`${state}x`)},"inputResponses":${answers}`),
            headers,
          );
          await survives(call(`,"inputResponses":${text}`), headers);
        }),
        { numRuns: 30 },
      );
    });

    it('is a word of surrogates, of null characters, and of line ends, which a tool gets as it was sent', async () => {
      for (const word of ['\ud800', 'a\u0000b', '\u2028\n\ndata: x', '__proto__']) {
        const first = await post(served.url, { tool: 'echo', args: { word } });
        const responses = accept(first.keys, { name: word });
        const done = await post(served.url, { tool: 'echo', args: { word }, state: first.state, responses });
        expect(textOf(done)).toBe(`${word} ${word}`);
      }
    });

    it('is a body that grows when it is unpacked', async () => {
      const bomb = gzipSync(Buffer.alloc(50_000_000, 0x20));
      expect(bomb.length).toBeLessThan(100_000);
      for (const encoding of ['gzip', 'br', 'deflate, gzip']) {
        const response = await fetch(served.url, {
          method: 'POST',
          headers: {
            ...modernHeaders('tools/call', 'echo'),
            'content-encoding': encoding,
            'content-type': 'application/json',
          },
          body: bomb,
        });
        expect(response.status).toBe(415);
      }
    });

    it('leaves the server as it was', async () => {
      const client = await modern(served.url);
      expect(await client.tool('in-turn')).toBe('its name, its city, its street');
      await client.close();
    });
  });
}
