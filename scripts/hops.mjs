// npm run hops: how many files and named functions of this package three requests pass through, by V8's coverage. Two
// handlers of one process share a store, as two processes would. To be watched: no check reads it.
import { mkdtempSync, rmSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';

const dist = pathToFileURL(join(import.meta.dirname ?? process.cwd(), '../dist/')).href;
const { createAwaitHandler } = await import(`${dist}src/index.js`);
const { openStore } = await import(`${dist}src/store.js`);

const folder = mkdtempSync(join(tmpdir(), 'hops-'));
const secrets = ['a secret of this script that has 32 bytes and more'];
const SCHEMA = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };

function build() {
  const server = new McpServer({ name: 'hops', version: '1.0.0' });
  server.registerTool('hello', {}, async () => {
    const { content } = await server.server.elicitInput({ message: 'name?', requestedSchema: SCHEMA });
    return { content: [{ type: 'text', text: `Hello ${content?.name}` }] };
  });
  return server;
}

const store = await openStore(`sqlite://${join(folder, 'hops.sqlite')}`);
const logger = { debug() {}, info() {}, warn() {}, error() {} };
const handlers = [0, 1].map(() => createAwaitHandler(build, { store, secrets, logger }));

function post(nth, body, headers) {
  return handlers[nth].fetch(
    new Request('http://127.0.0.1/mcp', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
      body: JSON.stringify({ jsonrpc: '2.0', ...body }),
    }),
  );
}

const inspector = new Session();
inspector.connect();
await inspector.post('Profiler.enable');
await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });

/** Files and named functions that ran since the last look. */
async function passed() {
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  let files = 0;
  let functions = 0;
  for (const { url, functions: found } of result) {
    if (!url.startsWith(dist)) continue;
    const ran = found.filter(({ functionName, ranges }) => functionName !== '' && ranges[0]?.count > 0);
    if (ran.length > 0) files += 1;
    functions += ran.length;
  }
  return { files, functions };
}

async function measured(what, run) {
  await passed();
  const result = await run();
  const { files, functions } = await passed();
  process.stdout.write(`${what}: ${functions} functions in ${files} files\n`);
  return result;
}

/** The first message of a stream that has one of a method, or a response. */
async function messageIn(response, isIt) {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    const found = text
      .split('\n')
      .filter((line) => line.startsWith('data: {') || line.startsWith('{'))
      .map((line) => JSON.parse(line.replace(/^data: /, '')))
      .find(isIt);
    if (found !== undefined) return found;
  }
  throw new Error(`no such message in: ${text}`);
}

const CLIENT = { capabilities: { elicitation: { form: {} } }, info: { name: 'hops', version: '1.0.0' } };
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': CLIENT.info,
  'io.modelcontextprotocol/clientCapabilities': CLIENT.capabilities,
};
const MODERN = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'hello' };

async function resumeElsewhere(watch) {
  const params = { name: 'hello', arguments: {}, _meta: META };
  const asked = await post(0, { id: 1, method: 'tools/call', params }, MODERN);
  const { result } = await messageIn(asked, () => true);
  const [key] = Object.keys(result.inputRequests);
  const inputResponses = { [key]: { action: 'accept', content: { name: 'Ann' } } };
  const retry = { ...params, requestState: result.requestState, inputResponses };
  return watch('2026-07-28, resume at another process', async () =>
    (await post(1, { id: 2, method: 'tools/call', params: retry }, MODERN)).text(),
  );
}

async function liveCall(watch) {
  const { capabilities, info: clientInfo } = CLIENT;
  const params = { protocolVersion: '2025-11-25', capabilities, clientInfo };
  const begun = await post(0, { id: 1, method: 'initialize', params });
  const headers = {
    'mcp-session-id': begun.headers.get('mcp-session-id'),
    'mcp-protocol-version': '2025-11-25',
  };
  const call = { id: 2, method: 'tools/call', params: { name: 'hello', arguments: {} } };
  const ask = await watch('2025-11-25, a call up to its question', async () =>
    messageIn(await post(0, call, headers), ({ method }) => method === 'elicitation/create'),
  );
  const result = { action: 'accept', content: { name: 'Ann' } };
  await watch('2025-11-25, its answer at another process', async () =>
    (await post(1, { id: ask.id, result }, headers)).text(),
  );
}

// The first round compiles schemas and fills caches.
const quietly = (_what, run) => run();
for (const watch of [quietly, measured]) {
  await resumeElsewhere(watch);
  await liveCall(watch);
}
await Promise.all(handlers.map((handler) => handler.close()));
await store.disconnect();
rmSync(folder, { recursive: true, force: true });
process.exit();
