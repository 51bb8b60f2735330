/** WebSocket by hand (RFC 6455): upgrade requests and frames, most of them right, in pieces and damaged. */
import { randomBytes } from 'node:crypto';
import type { Random } from '../fixtures/random.ts';

const [TEXT, BINARY, CLOSE, PING, PONG] = [1, 2, 8, 9, 10] as const;

export function upgradeText(random: Random): string {
  const headers: Record<string, string> = {
    host: 'localhost',
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': randomBytes(16).toString('base64'),
    'sec-websocket-protocol': 'mcp',
  };
  if (random.int(5) === 0) {
    const [name, values] = random.pick(WRONG);
    const value = random.pick(values);
    if (value === null) delete headers[name];
    else headers[name] = value;
  }
  if (random.int(20) === 0)
    headers.authorization = random.pick(['Bearer ann', 'Bearer bob', 'Bearer refused']);
  if (random.int(20) === 0) headers['mcp-session-id'] = random.pick(['x', 'a'.repeat(3_000)]);
  const path = random.int(30) === 0 ? random.pick(['/', '/mcp?x=%', '/mcp/', '//', '/mcp/acme']) : '/mcp';
  const method = random.int(50) === 0 ? random.pick(['POST', 'HEAD', 'PUT', 'FOO']) : 'GET';
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`;
}

const WRONG: readonly (readonly [string, readonly (string | null)[]])[] = [
  ['host', ['evil.example', '[::bad', '', null]],
  ['connection', ['keep-alive, Upgrade', 'close', null]],
  ['upgrade', ['WebSocket', 'h2c', 'websocket, foo', null]],
  ['sec-websocket-version', ['8', '12', '99', 'x', '', null]],
  ['sec-websocket-key', ['', 'x', 'a'.repeat(24), 'a'.repeat(4_000), null]],
  [
    'sec-websocket-protocol',
    ['', 'x', 'mcp, mcp', 'mcp,x', 'MCP', ',', 'x, mcp', '"mcp"', 'a,'.repeat(2_000), null],
  ],
  [
    'sec-websocket-extensions',
    ['permessage-deflate', 'x; y=z', ';', 'permessage-deflate; client_max_window_bits=99'],
  ],
  ['origin', ['https://evil.example', 'null', 'http://localhost', 'x']],
  ['sec-fetch-site', ['cross-site', 'same-origin']],
  ['content-length', ['5', '-1']],
];

interface Frame {
  readonly opcode: number;
  readonly payload: Buffer;
  readonly fin?: boolean;
  readonly rsv?: number;
  readonly masked?: boolean;
  /** What it says its length is, where that is not so. */
  readonly length?: number;
}

function frame({
  opcode,
  payload,
  fin = true,
  rsv = 0,
  masked = true,
  length = payload.length,
}: Frame): Buffer {
  const first = (fin ? 0x80 : 0) | (rsv << 4) | opcode;
  const mask = masked ? 0x80 : 0;
  const head =
    length < 126
      ? Buffer.from([first, mask | length])
      : length < 65_536
        ? Buffer.from([first, mask | 126, length >> 8, length & 0xff])
        : Buffer.concat([Buffer.from([first, mask | 127]), wide(length)]);
  if (!masked) return Buffer.concat([head, payload]);
  const key = Buffer.from([1, 2, 3, 4]);
  const hidden = Buffer.from(payload.map((byte, at) => byte ^ (key[at % 4] ?? 0)));
  return Buffer.concat([head, key, hidden]);
}

function wide(length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(length));
  return bytes;
}

/** A message as one frame, as several fragments, or damaged so that it is no valid frame. */
export function framesOf(text: string, random: Random): Buffer {
  const payload = Buffer.from(text);
  const kind = random.int(60);
  if (kind < 6 && payload.length > 1) {
    const at = 1 + random.int(payload.length - 1);
    const between = random.int(3) === 0 ? [frame({ opcode: PING, payload: Buffer.from('between') })] : [];
    return Buffer.concat([
      frame({ opcode: TEXT, payload: payload.subarray(0, at), fin: false }),
      ...between,
      frame({ opcode: 0, payload: payload.subarray(at) }),
    ]);
  }
  return kind < 59 ? frame({ opcode: TEXT, payload }) : random.pick(BAD)(payload, random);
}

/** What must close the socket, or be ignored; a good frame may follow it. */
const BAD: readonly ((payload: Buffer, random: Random) => Buffer)[] = [
  (payload) => frame({ opcode: BINARY, payload }),
  (payload) => frame({ opcode: TEXT, payload, masked: false }),
  (payload, random) => frame({ opcode: TEXT, payload, rsv: 1 + random.int(7) }),
  (payload, random) => frame({ opcode: random.pick([3, 7, 11, 15]), payload }),
  (payload) => frame({ opcode: 0, payload }),
  (payload) => frame({ opcode: TEXT, payload, fin: false }),
  (payload) => frame({ opcode: PING, payload: payload.subarray(0, 200) }),
  (payload) => frame({ opcode: PING, payload: payload.subarray(0, 100), fin: false }),
  (payload) => frame({ opcode: PONG, payload: payload.subarray(0, 100) }),
  (_payload, random) => frame({ opcode: TEXT, payload: randomBytes(random.int(300)) }),
  (_payload, random) => randomBytes(random.int(300)),
  (payload, random) => frame({ opcode: TEXT, payload, length: random.pick([0, 2 ** 32, 2 ** 53]) }),
  (payload, random) =>
    frame({
      opcode: TEXT,
      payload: Buffer.concat([payload, Buffer.from([0xff, 0xc0])]),
      fin: random.int(2) === 0,
    }),
  (_payload, random) => closing(random),
];

export function closing(random: Random): Buffer {
  const code = random.pick([1000, 1001, 1005, 1006, 3000, 4999, 0, 65_535]);
  const bytes = Buffer.from([code >> 8, code & 0xff, ...Buffer.from(random.pick(['', 'bye', '\ud800']))]);
  return frame({
    opcode: CLOSE,
    payload: random.pick([bytes, bytes, Buffer.alloc(0), bytes.subarray(0, 1)]),
  });
}

export interface Received {
  /** The status of the reply to the upgrade; 0 without one. */
  readonly status: number;
  readonly texts: readonly string[];
  /** The code of the server's close frame. */
  readonly closed?: number;
}

/** Reads what a server sent: its reply to the upgrade, and its frames. */
export function received(bytes: Buffer): Received {
  const end = bytes.indexOf('\r\n\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(bytes.toString('latin1', 0, 20))?.[1] ?? 0);
  if (status !== 101) return { status, texts: [] };
  const texts: string[] = [];
  for (let at = end + 4; at + 2 <= bytes.length; ) {
    const opcode = (bytes[at] ?? 0) & 0x0f;
    const short = (bytes[at + 1] ?? 0) & 0x7f;
    const head = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (at + head > bytes.length) break;
    const length =
      short < 126
        ? short
        : short === 126
          ? bytes.readUInt16BE(at + 2)
          : Number(bytes.readBigUInt64BE(at + 2));
    const payload = bytes.subarray(at + head, at + head + length);
    if (payload.length < length) break;
    at += head + length;
    if (opcode === TEXT) texts.push(payload.toString());
    if (opcode === CLOSE && payload.length >= 2) return { status, texts, closed: payload.readUInt16BE(0) };
  }
  return { status, texts };
}
