/** A 2025-11-25 session by hand: what the SDK's client would not send, or not wait for. */
import { messagesIn, type Rpc } from './clients.ts';

export interface Stream {
  /** The next message that is the one wanted. */
  next(wanted: (message: Rpc) => boolean): Promise<Rpc>;
  /** The client goes away. */
  cancel(): Promise<void>;
}

export async function legacySession(
  url: string,
  capabilities: object,
  own: Readonly<Record<string, string>> = {},
): Promise<{ send(message: object): Promise<Stream> }> {
  let sessionId = '';
  const send = async (message: object): Promise<Stream> => {
    const response = await fetch(url, {
      method: 'POST',
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...own,
        ...(sessionId !== '' && { 'mcp-session-id': sessionId, 'mcp-protocol-version': '2025-11-25' }),
      },
    });
    sessionId = response.headers.get('mcp-session-id') ?? sessionId;
    return streamOf(response);
  };
  const clientInfo = { name: 'e2e', version: '1' };
  const params = { protocolVersion: '2025-11-25', capabilities, clientInfo };
  await send({ id: 0, method: 'initialize', params });
  return { send };
}

function streamOf(response: Response): Stream {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  return {
    cancel: async () => reader?.cancel(),
    async next(wanted) {
      for (;;) {
        const found = messagesIn(text.slice(0, text.lastIndexOf('\n') + 1)).find(wanted);
        if (found !== undefined) return found;
        const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
        if (done) throw new Error(`the stream ended: ${text}`);
        text += value;
      }
    },
  };
}
