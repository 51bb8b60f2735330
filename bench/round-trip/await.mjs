/** The tool in await style on SDK v1, served by mcp-await. */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv';
import { createAwaitHandler } from '../../dist/src/index.js';
import { toNodeHandler } from '../../dist/src/node.js';
import { DESCRIPTION, INPUT, QUESTION_SCHEMA, question, resultText, SECRET, SERVER, TOOL } from './tool.mjs';

/** The journal in memory; the second request finds the call where the first left it. */
export function parked() {
  return toNodeHandler(createAwaitHandler(() => build(), { secrets: [SECRET] }));
}

/**
 * The journal in the token, nothing parked. The second request of a call reaches a handler that has not seen the first,
 * as in another process: it opens the token and runs the call again from its start.
 */
export function replayed() {
  return inTurns(() => build());
}

/** The same with one shared validator; the SDK otherwise makes one for each server. */
export function replayedShared() {
  const jsonSchemaValidator = new AjvJsonSchemaValidator();
  return inTurns(() => build({ jsonSchemaValidator }));
}

function inTurns(factory) {
  const options = { secrets: [SECRET], state: 'sealed', limits: { frames: 0 } };
  const handlers = [0, 1].map(() => toNodeHandler(createAwaitHandler(factory, options)));
  const served = new WeakMap();
  return (req, res) => {
    const count = served.get(req.socket) ?? 0;
    served.set(req.socket, count + 1);
    return handlers[count % 2](req, res);
  };
}

function build(options) {
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
