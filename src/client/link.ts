/** How the messages of a client go over one kind of wire; a transport has one, and what it says is delivered there. */
import type { TransportSendOptions } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { Answer, Rpc, RpcNotification, RpcRequest } from './message.ts';

export interface Link {
  /** Resolves once the server has taken it; rejects where that is how the client hears of a failure. */
  request(message: RpcRequest, options: TransportSendOptions): Promise<void>;
  notify(message: RpcNotification): Promise<void>;
  /** An answer to what nobody of this transport asked. */
  answer(message: Answer): Promise<void>;
  /** The version that the client was told. */
  setProtocolVersion(version: string): void;
  /** Leaves what is open; the endpoint sends nothing any more. */
  close(): void;
}

export interface LinkPorts {
  readonly deliver: (message: Rpc) => void;
  readonly report: (error: Error) => void;
}
