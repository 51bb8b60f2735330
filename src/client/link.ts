/** One kind of wire, between a client's messages and the server; a transport has one link and receives its messages. */
import type { TransportSendOptions } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { ClientRequest, Rpc, RpcAnswer, RpcNotification } from './message.ts';

export interface ClientLink {
  /** Resolves once the server has taken it; rejects where that is how the client hears of a failure. */
  request(message: ClientRequest, options: TransportSendOptions): Promise<void>;
  notify(message: RpcNotification): Promise<void>;
  /** An answer to an ask that did not come over this transport. */
  answer(message: RpcAnswer): Promise<void>;
  /** The version that `Client` was given. */
  setProtocolVersion(version: string): void;
  /** Goes on with a stream that broke, where the revision has streams to resume. */
  resumeStream?(
    lastEventId: string,
    options: { readonly onresumptiontoken?: ((token: string) => void) | undefined },
  ): Promise<void>;
  /** Abandons open requests; the endpoint sends nothing any more. */
  close(): void;
}

export interface LinkPorts {
  readonly deliver: (message: Rpc) => void;
  readonly report: (error: Error) => void;
}
