/** The tool as its author writes it for 2026-07-28 by hand, on SDK v2: a server for each request. */
import { Readable } from 'node:stream';
import {
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
} from '@modelcontextprotocol/server';
import {
  CONFIRMATION,
  DESCRIPTION,
  INPUT,
  QUESTION_SCHEMA,
  question,
  resultText,
  SECRET,
  SERVER,
  TOOL,
} from './tool.mjs';

const codec = createRequestStateCodec({ key: SECRET });

export function listener() {
  return onNode(createMcpHandler(build));
}

function build() {
  const server = new McpServer(SERVER, { requestState: { verify: codec.verify } });
  server.registerTool(TOOL, { description: DESCRIPTION, inputSchema: INPUT }, async ({ branch }, ctx) => {
    const asked = ctx.mcpReq.requestState()?.branch === branch;
    const answer = acceptedContent(ctx.mcpReq.inputResponses, 'confirm', CONFIRMATION);
    if (!asked || answer === undefined) {
      const confirm = inputRequired.elicit({ message: question(branch), requestedSchema: QUESTION_SCHEMA });
      return inputRequired({ inputRequests: { confirm }, requestState: await codec.mint({ branch }) });
    }
    const text = answer.confirm ? resultText(branch) : `not deployed ${branch}`;
    return { content: [{ type: 'text', text }] };
  });
  return server;
}

/** The SDK's handler on node:http, with less to do than `toNodeHandler` of @modelcontextprotocol/node. */
export function onNode(handler) {
  return async (req, res) => {
    const gone = new AbortController();
    res.once('close', () => {
      if (!res.writableFinished) gone.abort();
    });
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const parsedBody = JSON.parse(Buffer.concat(chunks).toString());
    const { method, headers } = req;
    const request = new Request(`http://${headers.host}${req.url}`, { method, headers, signal: gone.signal });
    const response = await handler.fetch(request, { parsedBody });
    res.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.headers.get('content-type') === 'application/json') res.end(await response.text());
    else Readable.fromWeb(response.body).pipe(res);
  };
}
