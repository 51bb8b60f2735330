// A client of 2025-11-25 that calls a tool at one process, and sends its user's answer to another.
//
//   node node_modules/mcp-await/examples/answer-elsewhere.mjs http://127.0.0.1:3001/mcp http://127.0.0.1:3002/mcp
import process from 'node:process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [calls = 'http://127.0.0.1:3001/mcp', answers = 'http://127.0.0.1:3002/mcp'] = process.argv.slice(2);
if (![calls, answers].every((url) => URL.canParse(url))) {
  console.error(
    'Give the URL to call, and the URL to answer at, such as http://127.0.0.1:3001/mcp and http://127.0.0.1:3002/mcp.',
  );
  process.exit(2);
}

/** A message without a `method` is an answer. */
const answersElsewhere = (url, init) => {
  const isAnswer = typeof init?.body === 'string' && !init.body.includes('"method"');
  const to = isAnswer ? answers : url;
  if (isAnswer) console.log('the answer goes to', to);
  return fetch(to, init);
};

const client = new Client({ name: 'desk', version: '1.0.0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  console.log('the user is asked', params.message, 'by', calls);
  return { action: 'accept', content: { day: 'Monday' } };
});
const transport = new StreamableHTTPClientTransport(new URL(calls), { fetch: answersElsewhere });
try {
  await client.connect(transport);
} catch (error) {
  console.error(`There is no server at ${calls}:`, error.cause?.message ?? error.message);
  process.exit(1);
}
const { content } = await client.callTool({ name: 'book_flight' }, undefined, { timeout: 3_600_000 });
console.log('the result is', content);
await client.close();
