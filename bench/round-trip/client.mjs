/** The load of the round trip: the request, its ask, and the request again with the answer. */
import { load as loadOf, unexpected } from '../connection.mjs';
import { answered, asking, REVISION, resultText, TOOL } from './tool.mjs';

/** Of each POST, without the length of its body. */
export const HEAD = [
  'POST /mcp HTTP/1.1',
  'Host: 127.0.0.1',
  'Content-Type: application/json',
  'Accept: application/json, text/event-stream',
  `MCP-Protocol-Version: ${REVISION}`,
  'Mcp-Method: tools/call',
  `Mcp-Name: ${TOOL}`,
].join('\r\n');

export function load({ port }, concurrency, seconds) {
  return loadOf(
    port,
    concurrency,
    seconds,
    (connection, index) => (nth) => call(connection, `branch-${index}-${nth}`, nth * 2),
  );
}

async function call(connection, branch, id) {
  const { message: first } = await connection.exchange(HEAD, asking(id, branch));
  if (first.result?.resultType !== 'input_required') throw unexpected(first);
  const { inputRequests, requestState } = first.result;
  const [key] = Object.keys(inputRequests);
  const { message } = await connection.exchange(HEAD, answered(id + 1, branch, key, requestState));
  if (message.result?.content?.[0]?.text !== resultText(branch)) throw unexpected(message);
}
