/** A client over raw sockets that does as little as it can, so that the server is measured. */
import { once } from 'node:events';
import { connect } from 'node:net';

/** A connection that is kept open, with one exchange on it at a time. */
export class Connection {
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

  /**
   * @param headers lines of the request's head, without the length
   * @returns the head of the response, and its message; the last one of a stream, undefined where there is none
   */
  exchange(headers, body) {
    const text = JSON.stringify(body);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#socket.write(`${headers}\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
    });
  }

  close() {
    this.#waiting = undefined;
    this.#socket.destroy();
  }

  #take(text) {
    this.#received += text;
    const end = this.#received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const head = this.#received.slice(0, end);
    const body = bodyOf(head, this.#received.slice(end + 4));
    if (body === undefined) return;
    this.#received = '';
    this.#waiting.resolve({ head, message: messageOf(body) });
  }
}

/** Makes calls, `concurrency` at a time, each worker on a connection of its own, until `seconds` are over. */
export async function load(port, concurrency, seconds, begin) {
  const workers = await Promise.all(
    Array.from({ length: concurrency }, async (_, index) => {
      const connection = await Connection.open(port);
      return { connection, call: await begin(connection, index) };
    }),
  );
  const began = performance.now();
  const until = began + seconds * 1000;
  const counts = await Promise.all(
    workers.map(async ({ connection, call }) => {
      let calls = 0;
      for (; performance.now() < until; calls += 1) await call(calls);
      connection.close();
      return calls;
    }),
  );
  return {
    calls: counts.reduce((sum, count) => sum + count, 0),
    elapsed: (performance.now() - began) / 1000,
  };
}

export function unexpected(message) {
  return new Error(`not what was expected: ${JSON.stringify(message)}`);
}

/** The body of a whole response; undefined while something of it is missing. */
function bodyOf(head, body) {
  const length = /^content-length: (\d+)/im.exec(head)?.[1];
  if (length !== undefined) return body.length < Number(length) ? undefined : body;
  if (/^HTTP\/1.1 20[24]/.test(head) && !/^transfer-encoding/im.test(head)) return '';
  return body.endsWith('0\r\n\r\n') ? unchunked(body) : undefined;
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

function messageOf(body) {
  if (body.startsWith('{')) return JSON.parse(body);
  const line = body.lastIndexOf('data: {');
  return line < 0 ? undefined : JSON.parse(body.slice(line + 'data: '.length, body.indexOf('\n', line)));
}
