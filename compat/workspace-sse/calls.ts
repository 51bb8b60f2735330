/** The requests of a workspace: each is a call of its own, in an instance of its own, with its own answers. */
import { AwaitError, invalidParams, type JsonObject } from '../../src/base/values.ts';
import type { Begun, NewCall } from '../../src/call/engine.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import { INTERNAL } from '../../src/call/run/wire-error.ts';
import type { CallerOf } from '../../src/call/task/tasks.ts';
import type { Inbound } from '../../src/doors/http/exchange.ts';
import { openForRequest, type Services } from '../../src/handler/services.ts';
import { LATEST } from '../../src/host/spoken.ts';
import { liveProjection, type ReplyDialect, type ReplyExchange } from '../session/call-reply.ts';
import { LiveCalls } from '../session/live-calls.ts';
import { type Caller, loggedWay, sourceOf, startCall, type Way } from '../session/start.ts';
import type { StreamOwner, WorkspaceChannel } from './channels.ts';
import { nameOf } from './listeners.ts';
import type { WorkspaceRequest } from './message.ts';
import { eventOf, REVISION } from './wire.ts';

/** The facts of a request besides its message. */
export interface WorkspaceCaller {
  readonly owner: StreamOwner;
  readonly inbound: Inbound;
  readonly client: Client;
}

export class Calls {
  readonly services: Services;
  /** The calls that run here, and the delivery of their answers. */
  readonly live: LiveCalls;

  constructor(services: Services) {
    this.services = services;
    this.live = new LiveCalls(services);
  }

  /** @param how the call's id and what stores it, from its reply; absent where a client cannot resume the reply */
  start(
    request: WorkspaceRequest,
    asker: WorkspaceCaller,
    way: Way,
    how?: Pick<NewCall, 'onDurable' | 'callId' | 'session'>,
  ): Begun {
    const { owner, inbound } = asker;
    const { store } = this.services;
    const started = startCall(
      this.services,
      {
        request,
        caller: callerOf(asker),
        source: { ...sourceOf(inbound), workspace: owner.workspace },
        resumable: how !== undefined && store?.isShared === true,
        ...how,
      },
      () => way,
    );
    return this.live.keep(started, senderOf(owner));
  }

  /** As `ReplyDialect`s see a request. @param channel the stream that the calls' replies go to, if it is a GET's */
  exchange({ owner, inbound }: Omit<WorkspaceCaller, 'client'>, channel?: WorkspaceChannel): ReplyExchange {
    const sender = senderOf(owner);
    return {
      services: this.services,
      inbound,
      home: undefined,
      session: {
        name: sender.session,
        principal: owner.principal,
        runs: (callId) => this.live.runs(callId),
        keepCall: (requestId, started) => {
          this.live.keep(started, sender);
          channel?.keep(requestId, started);
        },
        beforeEnd: () => undefined,
      },
    };
  }

  /** How replies are written. @param known the client of an `initialize`, which may have come to any process */
  dialect({ owner, client }: Omit<WorkspaceCaller, 'inbound'>, known?: WorkspaceChannel): ReplyDialect {
    return {
      isEnd: () => false,
      project: (_exchange, call) => liveProjection(call, false, eventOf),
      event: eventOf,
      wrap: (sink) => sink,
      caller: async () => callerOf({ owner, client: (await known?.client()) ?? client }),
      source: ({ inbound }) => ({ ...sourceOf(inbound), workspace: owner.workspace }),
      way: (_exchange, direct, beforeEnd) => loggedWay(direct, beforeEnd),
    };
  }

  /** The server's answer to `initialize`; its instance is not kept. */
  async initialize(
    { id }: WorkspaceRequest,
    { owner: { workspace }, inbound, client }: WorkspaceCaller,
  ): Promise<JsonObject> {
    try {
      const opening = { era: 'legacy', revision: REVISION, client, workspace } as const;
      const instance = await openForRequest(this.services, inbound, opening);
      instance.close();
      this.services.serverInfo ??= instance.initialized.serverInfo;
      return { jsonrpc: '2.0', id, result: instance.initialized };
    } catch (error) {
      const { code, message, cause } = AwaitError.from(error);
      this.services.settings.logger.warn(message, { code, cause });
      const isTheirs = code === 'bad-answer';
      const told = isTheirs ? invalidParams('the server does not take these capabilities') : INTERNAL;
      return { jsonrpc: '2.0', id, error: told };
    }
  }
}

/** Whose calls are whose: a caller's in one workspace. */
export function senderOf({ principal, workspace }: StreamOwner): CallerOf & { readonly session: string } {
  return { principal, session: nameOf('calls', principal, workspace) };
}

function callerOf({ owner: { principal }, client }: Omit<WorkspaceCaller, 'inbound'>): Caller {
  return { client, principal, revision: REVISION };
}

/** A client that has not sent `initialize`. */
export function unknownClient(capabilities: JsonObject): Client {
  return { capabilities, info: { name: 'unknown', version: 'unknown' }, protocolVersion: LATEST };
}
