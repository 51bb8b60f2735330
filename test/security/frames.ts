/** Frames of a WebSocket, as a client writes them on its connection. */

/** A masked frame; the mask is zero, so that its content stands as it is. */
export function frame(opcode: number, content: Buffer, isLast: boolean, length = content.byteLength): Buffer {
  const first = (isLast ? 0x80 : 0) | opcode;
  if (length < 126) return Buffer.concat([Buffer.from([first, 0x80 | length, 0, 0, 0, 0]), content]);
  const head = Buffer.alloc(14);
  head[0] = first;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, content]);
}
