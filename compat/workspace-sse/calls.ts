/** The requests of a workspace: each a call of its own, in an instance of its own, and whose its answers are. */
import { randomUUID } from 'node:crypto';
import { bindingOf } from '../../src/call/binding.ts';
import type { Started } from '../../src/call/engine.ts';
import type { CallRecord, Client, OpenAsk } from '../../src/call/journal.ts';
import { isObject, type JsonObject } from '../../src/call/json.ts';
import type { Gone, Leg, Outcome } from '../../src/call/ports.ts';
import { AwaitError } from '../../src/error.ts';
import { HostInstance } from '../../src/host/instance.ts';
import { responseOf } from '../../src/host/transport.ts';
import type { Inbound } from '../../src/http/exchange.ts';
import { sourceOf } from '../2025/connection.ts';
import { CALLS, paramsOf } from '../2025/session.ts';
import { noSession, type Services } from '../services.ts';
import type { Owner } from './channels.ts';
import type { WorkspaceRequest } from './message.ts';
import { LATEST, REVISION } from './wire.ts';

/** Named by clients in `initialize`, and understood by the servers behind. */
const KNOWN: ReadonlySet<unknown> = new Set(['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']);

/** What a request brings besides its message. */
export interface Asker {
  readonly owner: Owner;
  readonly inbound: Inbound;
  readonly client: Client;
}

/** Where what comes before a response goes. */
interface Way {
  readonly say: (message: JsonObject) => void;
  /** Whether the client can come back for it, if its connection breaks. */
  readonly goesOn: boolean;
  /** Fires when nobody can hear of it any more. */
  readonly signal?: Gone;
}

export class Calls {
  readonly #services: Services;
  /** By the call's id, for its answers. */
  readonly #running = new Map<
    string,
    { readonly started: Started; readonly principal: string | undefined }
  >();

  constructor(services: Services) {
    this.#services = services;
  }

  /** Whether a call of this method goes on without its connection, at whichever process. */
  resumable(method: string): boolean {
    return CALLS.has(method) && this.#services.store?.isShared === true;
  }

  start(
    { id: requestId, method, params }: WorkspaceRequest,
    { owner, inbound, client }: Asker,
    { say, goesOn, signal }: Way,
  ): Started {
    const meta = isObject(params._meta) ? params._meta : {};
    const token = meta.progressToken as string | number | undefined;
    const leg = this.#leg(owner, inbound, client.capabilities, () => started.callId, say);
    const started = this.#services.engine.start(
      {
        method,
        params,
        requestId,
        client,
        binding: bindingOf({ revision: REVISION, method, params, principal: owner.principal }),
        resumable: goesOn && this.resumable(method),
      },
      {
        ...leg,
        ...(token !== undefined && { progressToken: token }),
        ...(signal !== undefined && { signal }),
      },
    );
    this.#keep(started, owner);
    return started;
  }

  /**
   * Follows a call, and takes it up here when its process is silent for a lease.
   *
   * @param onTaken told when it is this process's
   */
  follow(
    callId: string,
    { owner, inbound, client }: Asker,
    say: (message: JsonObject) => void,
    onTaken: (call: CallRecord, started: Started) => void,
  ): Started {
    const leg = this.#leg(owner, inbound, client.capabilities, () => callId, say);
    const started = this.#services.engine.takeUp(
      callId,
      bindingOf({ revision: REVISION, method: '', params: {}, principal: owner.principal }),
      leg,
      async (call): Promise<undefined> => {
        this.#keep(started, owner);
        onTaken(call, started);
      },
    );
    return started;
  }

  runs(callId: string): boolean {
    return this.#running.has(callId);
  }

  /** The client's response to an ask; false when this caller was asked nothing of the kind. */
  async answer({ principal }: Owner, message: JsonObject): Promise<boolean> {
    const id = String(message.id);
    const slash = id.indexOf('/');
    if (slash < 0) return false;
    const [callId, key] = [id.slice(0, slash), id.slice(slash + 1)];
    const here = this.#running.get(callId);
    if (here !== undefined) {
      return here.principal === principal && here.started.answer(key, responseOf(message));
    }
    try {
      await this.#services.engine.deliver(callId, principal, key, responseOf(message));
      return true;
    } catch (error) {
      if (error instanceof AwaitError && error.code === 'bad-token') return false;
      throw error;
    }
  }

  /** The server's answer to `initialize`; its instance is not kept. */
  async initialize(
    { id }: WorkspaceRequest,
    { owner: { workspace }, inbound, client }: Asker,
  ): Promise<JsonObject> {
    const { factory, settings, outside } = this.#services;
    try {
      const instance = await HostInstance.open({
        factory,
        client,
        context: {
          era: 'legacy',
          revision: REVISION,
          ...(inbound.authInfo !== undefined && { authInfo: inbound.authInfo }),
          requestInfo: inbound.request(),
          clientCapabilities: client.capabilities,
          clientInfo: client.info,
          workspace,
        },
        sessionId: randomUUID(),
        single: true,
        contexts: settings.steps,
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

  #keep(started: Started, { principal }: Owner): void {
    this.#running.set(started.callId, { started, principal });
    void started.outcome.finally(() => this.#running.delete(started.callId));
  }

  #leg(
    { workspace }: Owner,
    inbound: Inbound,
    capabilities: JsonObject,
    callId: () => string,
    say: (message: JsonObject) => void,
  ): Leg {
    // Any process that gets the answer can tell by its id whose it is.
    const idOf = (ask: OpenAsk): string => `${callId()}/${ask.key}`;
    return {
      ...sourceOf(inbound),
      workspace,
      live: true,
      capabilities,
      notify: (notification) => say({ jsonrpc: '2.0', ...notification }),
      ask: (ask) => say({ jsonrpc: '2.0', id: idOf(ask), method: ask.method, ...paramsOf(ask) }),
      withdraw: (ask) =>
        say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: idOf(ask) } }),
    };
  }
}

/** A client that said nothing of itself. */
export function unknownClient(capabilities: JsonObject): Client {
  return { capabilities, info: { name: 'unknown', version: 'unknown' }, protocolVersion: LATEST };
}

/** What a client says of itself; undefined when that is no `initialize`. */
export function clientOf({ protocolVersion, capabilities, clientInfo }: JsonObject): Client | undefined {
  if (typeof protocolVersion !== 'string' || !isObject(capabilities) || !isObject(clientInfo))
    return undefined;
  return {
    capabilities,
    info: clientInfo,
    protocolVersion: KNOWN.has(protocolVersion) ? protocolVersion : LATEST,
  };
}

/** The response to a request; undefined when it was cancelled, and gets none. */
export function messageOf(
  { id }: { readonly id: string | number },
  outcome: Outcome,
): JsonObject | undefined {
  return outcome.kind === 'responded' ? { jsonrpc: '2.0', id, ...outcome.response } : undefined;
}
