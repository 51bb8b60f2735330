/**
 * A session of 2025-03-26, 2025-06-18 and 2025-11-25: requests on the POST's own stream, asks live on it, answers
 * by POST.
 * https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
 */
import { primed } from '../session/call-reply.ts';
import { introduced, refuseOneKind, serveLive, serveMessages } from '../session/live.ts';
import { refuseMessages } from '../session/requests.ts';
import { resumeTaskReply } from '../session/task-reply.ts';
import type { SessionWire } from '../session/wire.ts';

export const LIVE: SessionWire = {
  isDraft: false,
  refuse: (inbound, body) => refuseOneKind(inbound, body) ?? refuseMessages(body),
  begun: (exchange, instance) => ({ result: introduced(exchange, instance) }),
  post: (exchange, body) => serveMessages(exchange, body, serveLive),
  follow: (exchange, stream, last, sink) =>
    resumeTaskReply(exchange, stream, primed(exchange.session, last, sink)),
};
