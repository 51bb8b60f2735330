/** The tool in await style on SDK v1, served by mcp-await. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { createAwaitHandler } from '../../dist/src/index.js';
import { toNodeHandler } from '../../dist/src/node.js';
import { storeNamed } from '../stores.mjs';
import { DESCRIPTION, INPUT, QUESTION_SCHEMA, question, resultText, SECRET, SERVER, TOOL } from './tool.mjs';

/** The journal in memory; the second request finds the call where the first left it. */
export function parked() {
  return toNodeHandler(createAwaitHandler(() => build(), { secrets: [SECRET] }));
}

/** The same; the tool's author passes on what all servers can share. */
export function parkedShared() {
  return toNodeHandler(
    createAwaitHandler(({ serverOptions }) => build(serverOptions), { secrets: [SECRET] }),
  );
}

/** The same with one server for all calls. */
export function parkedProcess() {
  return toNodeHandler(createAwaitHandler(() => build(), { secrets: [SECRET], instance: 'process' }));
}

/** The journal in a store; the second request finds the parked tool. */
export async function here(name) {
  const store = await storeNamed(name);
  return toNodeHandler(createAwaitHandler(() => build(), { secrets: [SECRET], store }));
}

/** The journal in Redis; each second request comes to the other of two processes, as two handlers without a relay. */
export async function elsewhere() {
  const stores = await Promise.all([storeNamed('redis'), storeNamed('redis')]);
  return inTurns(
    () => build(),
    (nth) => ({ secrets: [SECRET], store: stores[nth] }),
  );
}

/**
 * The journal in the token, nothing parked. The second request of a call reaches a handler that has not seen the first,
 * as in another process: it opens the token and runs the call again from its start.
 */
export function replayed() {
  return inTurns(
    () => build(),
    () => SEALED,
  );
}

/** The same; the tool's author passes on what all servers can share. */
export function replayedShared() {
  return inTurns(
    ({ serverOptions }) => build(serverOptions),
    () => SEALED,
  );
}

const SEALED = { secrets: [SECRET], state: 'sealed', limits: { frames: 0 } };

/** @param options of each of the two handlers */
function inTurns(factory, options) {
  const handlers = [0, 1].map((nth) => toNodeHandler(createAwaitHandler(factory, options(nth))));
  const served = new WeakMap();
  return (req, res) => {
    const count = served.get(req.socket) ?? 0;
    served.set(req.socket, count + 1);
    return handlers[count % 2](req, res);
  };
}

export function build(options) {
  const server = new McpServer(SERVER, options);
  server.registerTool(TOOL, { description: DESCRIPTION, inputSchema: INPUT }, async ({ branch }) => {
    const answer = await server.server.elicitInput({
      message: question(branch),
      requestedSchema: QUESTION_SCHEMA,
    });
    const text = answer.content?.confirm === true ? resultText(branch) : `not deployed ${branch}`;
    return { content: [{ type: 'text', text }] };
  });
  return server;
}
