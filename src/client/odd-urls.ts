/** Asks for URLs that are none of the web's (`javascript:`, `file:`) never reach the client: a UI may open them. */
import { invalidParams } from '../base/values.ts';
import { isOddUrlAsk, namesOddUrl, ODD_URL } from '../base/web-url.ts';
import { isAnswer, isRequest, type Rpc, type RpcAnswer } from './message.ts';

/** The answer to an ask that is refused here; undefined where the client decides. */
export function refusedAsk(message: Rpc): RpcAnswer | undefined {
  if (!isRequest(message) || !isOddUrlAsk(message.method, message.params)) return undefined;
  return { jsonrpc: '2.0', id: message.id, error: invalidParams(ODD_URL) };
}

/** A response as the client gets it: a -32042 with such a URL is an error without URLs. */
export function withoutOddUrls(message: Rpc): Rpc {
  if (!isAnswer(message) || !('error' in message) || !namesOddUrl(message.error)) return message;
  return { ...message, error: { code: -32603, message: `The server's error was refused: ${ODD_URL}` } };
}
