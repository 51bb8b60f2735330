/** The requests of a workspace: each is a call of its own, in an instance of its own, with its own answers. */
import { randomUUID } from 'node:crypto';
import { withoutIcons } from '../../src/base/description.ts';
import { AwaitError } from '../../src/base/error.ts';
import { isObject, type JsonObject } from '../../src/base/json.ts';
import type { Begun } from '../../src/call/engine.ts';
import type { Client } from '../../src/call/journal/entries.ts';
import type { Gone } from '../../src/call/ports.ts';
import { LATEST, SPOKEN } from '../../src/host/spoken.ts';
import type { Inbound } from '../../src/http/exchange.ts';
import type { Sink } from '../../src/stream/tail.ts';
import { noSession, type Services } from '../services.ts';
import { followList, goneWith } from '../session/follow.ts';
import { LiveCalls } from '../session/live-calls.ts';
import { type Caller, isResumable, liveWay, sourceOf, startCall } from '../session/start.ts';
import type { Channel, Owner } from './channels.ts';
import type { WorkspaceRequest } from './message.ts';
import { REVISION } from './wire.ts';

/** The facts of a request besides its message. */
export interface Asker {
  readonly owner: Owner;
  readonly inbound: Inbound;
  readonly client: Client;
}

/** Sends the messages that come before a response. */
interface Way {
  readonly say: (message: JsonObject) => void;
  /** Whether the client can come back for it, if its connection breaks. */
  readonly goesOn: boolean;
  /** Fires when no connection can get the response any more. */
  readonly signal?: Gone;
}

export class Calls {
  readonly #services: Services;
  /** The calls that run here, and the delivery of their answers. */
  readonly live: LiveCalls;

  constructor(services: Services) {
    this.#services = services;
    this.live = new LiveCalls(services);
  }

  start(request: WorkspaceRequest, asker: Asker, { say, goesOn, signal }: Way): Begun {
    const { owner, inbound } = asker;
    const started = startCall(
      this.#services,
      {
        request,
        caller: callerOf(asker),
        source: { ...sourceOf(inbound), workspace: owner.workspace },
        resumable: goesOn && isResumable(this.#services, request),
      },
      (callId) => ({ ...liveWay(callId, say), ...(signal !== undefined && { signal }) }),
    );
    this.live.keep(started, owner.principal);
    return started;
  }

  /** Follows the calls of a stream for as long as its connection is there. */
  follow(channel: Channel, asker: Asker, sink: Sink): void {
    const { list } = channel;
    if (list === undefined) return;
    const { owner, inbound } = asker;
    void followList(
      {
        services: this.#services,
        source: { ...sourceOf(inbound), workspace: owner.workspace },
        gone: goneWith(sink),
        // The client may have sent its capabilities after it connected.
        caller: async () => callerOf({ ...asker, client: (await channel.client()) ?? asker.client }),
        runs: (callId) => this.live.runs(callId),
        way: (callId) => liveWay(callId, (message) => channel.say(message)),
        take: async ({ requestId }, started) => {
          this.live.keep(started, owner.principal);
          channel.keep(requestId, started);
          return undefined;
        },
        isTold: (callId) => list.isTold(callId),
        tell: ({ id, requestId }, outcome) => channel.tell(requestId, outcome, id),
      },
      list,
    );
  }

  /** The server's answer to `initialize`; its instance is not kept. */
  async initialize(
    { id }: WorkspaceRequest,
    { owner: { workspace }, inbound, client }: Asker,
  ): Promise<JsonObject> {
    const { instances, settings, outside } = this.#services;
    try {
      const instance = await instances.open({
        id: randomUUID(),
        era: 'legacy',
        revision: REVISION,
        client,
        principal: this.#services.principal(inbound.authInfo),
        authInfo: inbound.authInfo,
        request: () => inbound.request(),
        workspace,
        serves: 'request',
        outside: noSession(settings, outside),
      });
      instance.close();
      this.#services.serverInfo ??= instance.initialized.serverInfo;
      return { jsonrpc: '2.0', id, result: instance.initialized };
    } catch (error) {
      const { code, message, cause } = AwaitError.from(error);
      settings.logger.warn(message, { code, cause: String(cause ?? '') });
      const isTheirs = code === 'bad-answer';
      const told = isTheirs
        ? { code: -32602, message: 'Invalid params: the server does not take these capabilities' }
        : { code: -32603, message: 'Internal error' };
      return { jsonrpc: '2.0', id, error: told };
    }
  }
}

function callerOf({ owner: { principal }, client }: Asker): Caller {
  return { client, principal, revision: REVISION };
}

/** A client that has not sent `initialize`. */
export function unknownClient(capabilities: JsonObject): Client {
  return { capabilities, info: { name: 'unknown', version: 'unknown' }, protocolVersion: LATEST };
}

/** The client in the params of an `initialize`; undefined if they are not such. */
export function clientOf({ protocolVersion, capabilities, clientInfo }: JsonObject): Client | undefined {
  if (typeof protocolVersion !== 'string' || !isObject(capabilities) || !isObject(clientInfo))
    return undefined;
  return {
    capabilities,
    info: withoutIcons(clientInfo),
    protocolVersion: SPOKEN.has(protocolVersion) ? protocolVersion : LATEST,
  };
}
