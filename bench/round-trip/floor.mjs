/** The same bodies from a bare server: the cost of HTTP and JSON alone. */
import { QUESTION_SCHEMA, question, resultText, SERVER } from './tool.mjs';

const META = { 'io.modelcontextprotocol/serverInfo': SERVER };

export function listener() {
  return (req, res) => {
    const chunks = [];
    req.on('data', (chunk) => chunks.push(chunk));
    req.on('end', () => {
      const { id, params } = JSON.parse(Buffer.concat(chunks).toString());
      const result = params.requestState === undefined ? ask(params) : finish(params);
      const text = JSON.stringify({ jsonrpc: '2.0', id, result });
      res.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
      res.end(text);
    });
  };
}

function ask(params) {
  const elicitation = {
    mode: 'form',
    message: question(params.arguments.branch),
    requestedSchema: QUESTION_SCHEMA,
  };
  return {
    resultType: 'input_required',
    inputRequests: { confirm: { method: 'elicitation/create', params: elicitation } },
    requestState: params.arguments.branch,
    _meta: META,
  };
}

function finish({ requestState }) {
  return {
    content: [{ type: 'text', text: resultText(requestState) }],
    resultType: 'complete',
    _meta: META,
  };
}
