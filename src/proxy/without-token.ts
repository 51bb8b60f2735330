/**
 * Stands for a server that cannot be asked: it wants its caller's own token, and there is none, as in a task that
 * another process takes over. Each request gets an error, so that its call ends.
 */
import type { HostServer } from '../host/protocol.ts';
import { LATEST } from '../host/spoken.ts';
import type { Message } from '../host/transport.ts';
import type { LeaseTransport } from './lease.ts';

const INITIALIZED = {
  result: {
    protocolVersion: LATEST,
    capabilities: { tools: {}, prompts: {}, resources: {} },
    serverInfo: { name: 'unknown', version: '0' },
  },
};
const REFUSED = {
  error: {
    code: -32603,
    message:
      'Internal error: the server wants the access token of this caller, which came with no request here and is not stored, so this call cannot go on',
  },
};

export function withoutToken(): HostServer {
  return {
    connect: (transport: LeaseTransport) => {
      transport.onmessage = ({ id, method }: Message) => {
        if (id === undefined || method === undefined) return;
        const response = method === 'initialize' ? INITIALIZED : REFUSED;
        void transport.send({ jsonrpc: '2.0', id, ...response });
      };
      return transport.start();
    },
  };
}
