/** The load: a client over raw sockets that does as little as it can, so that the server is measured. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { answered, asking, REVISION, resultText, TOOL } from './tool.mjs';

const HEAD = [
  'POST /mcp HTTP/1.1',
  'Host: 127.0.0.1',
  'Content-Type: application/json',
  'Accept: application/json, text/event-stream',
  `MCP-Protocol-Version: ${REVISION}`,
  'Mcp-Method: tools/call',
  `Mcp-Name: ${TOOL}`,
].join('\r\n');

/** Makes calls, `concurrency` at a time, until `seconds` are over. */
export async function load(port, concurrency, seconds) {
  const began = performance.now();
  const until = began + seconds * 1000;
  const counts = await Promise.all(
    Array.from({ length: concurrency }, (_, index) => work(port, index, until)),
  );
  const elapsed = (performance.now() - began) / 1000;
  return { calls: counts.reduce((sum, count) => sum + count, 0), elapsed };
}

async function work(port, index, until) {
  const connection = await Connection.open(port);
  let calls = 0;
  for (; performance.now() < until; calls += 1) await call(connection, `branch-${index}-${calls}`, calls * 2);
  connection.close();
  return calls;
}

/** One call: the request, its ask, and the request again with the answer. */
async function call(connection, branch, id) {
  const first = await connection.post(asking(id, branch));
  if (first.result?.resultType !== 'input_required') throw unexpected(first);
  const { inputRequests, requestState } = first.result;
  const [key] = Object.keys(inputRequests);
  const second = await connection.post(answered(id + 1, branch, key, requestState));
  if (second.result?.content?.[0]?.text !== resultText(branch)) throw unexpected(second);
}

function unexpected(message) {
  return new Error(`not what was expected: ${JSON.stringify(message)}`);
}

/** A connection that is kept open, with one exchange on it at a time. */
class Connection {
  #socket;
  #received = '';
  #waiting;

  static async open(port) {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    await once(socket, 'connect');
    return new Connection(socket);
  }

  constructor(socket) {
    this.#socket = socket;
    // All that is sent here is ASCII, so that characters count as bytes.
    socket.setEncoding('latin1');
    socket.on('data', (text) => this.#take(text));
    socket.on('error', (error) => this.#waiting?.reject(error));
    socket.on('close', () => this.#waiting?.reject(new Error('the server closed the connection')));
  }

  post(body) {
    const text = JSON.stringify(body);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#socket.write(`${HEAD}\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
    });
  }

  close() {
    this.#waiting = undefined;
    this.#socket.destroy();
  }

  #take(text) {
    this.#received += text;
    const body = bodyOf(this.#received);
    if (body === undefined) return;
    this.#received = '';
    this.#waiting.resolve(JSON.parse(body));
  }
}

/** The body of a whole response; undefined while something of it is missing. */
function bodyOf(response) {
  const end = response.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const body = response.slice(end + 4);
  const length = /^content-length: (\d+)/im.exec(response.slice(0, end))?.[1];
  if (length !== undefined) return body.length < Number(length) ? undefined : body;
  return body.endsWith('\r\n0\r\n\r\n') ? unchunked(body) : undefined;
}

function unchunked(body) {
  let text = '';
  for (let at = 0; ; ) {
    const start = body.indexOf('\r\n', at) + 2;
    const size = Number.parseInt(body.slice(at, start), 16);
    if (size === 0) return text;
    text += body.slice(start, start + size);
    at = start + size + 2;
  }
}
