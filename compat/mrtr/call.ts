/** A request of a draft, from its params to the members beside `id` in the response. */
import { defined, isObject, type JsonObject, objectOf } from '../../src/base/values.ts';
import type { ErrorAnswers } from '../../src/call/ask/answer.ts';
import { URLS_NEEDED } from '../../src/call/ask/url-elicitation.ts';
import type { RpcError, TaskWish } from '../../src/call/journal/entries.ts';
import type { Binding, Outcome, RequestContext } from '../../src/call/ports.ts';
import { bindingOf } from '../../src/call/run/binding.ts';
import { isBadToken } from '../../src/call/run/wire-error.ts';
import { isRequestId } from '../../src/doors/http/reply.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { sourceOf } from '../session/start.ts';
import { remembered } from '../session/state.ts';
import { hasOwnTasks, runsTasks, withoutTask, withTaskSupport } from '../tasks/legacy-wire.ts';
import { tasksOf } from '../tasks/refusal.ts';
import { wantedTask } from '../tasks/wanted.ts';
import type { Incoming } from './dialect.ts';
import { type Responding, refusal, type Served } from './served.ts';

/** Converts a draft's request for the engine: its params, the binding of its state, and its context. */

interface PreparedCall {
  readonly params: JsonObject;
  readonly binding: Binding;
  readonly context: RequestContext;
  /** When it becomes a task. */
  readonly task?: TaskWish;
  readonly ttl?: number;
}

async function prepare(
  { exchange, dialect, request, gone, notify }: Served,
  { params: given }: Incoming,
  shared: HostInstance,
): Promise<PreparedCall | { readonly error: RpcError }> {
  const { services, session, inbound } = exchange;
  const { method } = request;
  // Without tasks a client's wish for one is passed over, and a server that has its own gets it as it is.
  const isTheirs = hasOwnTasks(shared.initialized);
  const { task } = given;
  const params = isTheirs ? given : withoutTask(method, given);
  const { _meta, ...bound } = params;
  const meta = objectOf(_meta);
  const mayBeTask = method === 'tools/call' && runsTasks(services, shared.initialized);
  const { revision } = dialect;
  const { principal } = session;
  const mark = mayBeTask ? await services.marks.of(principal, String(params.name ?? ''), shared) : {};
  const wanted = mayBeTask ? wantedTask(services, session, { revision, params, task, mark }) : {};
  if ('error' in wanted) return wanted;
  const { wish, ttl } = wanted;
  return {
    params,
    binding: bindingOf({ revision, method, params, principal }, bound),
    context: {
      ...sourceOf(inbound),
      live: false,
      sheds: true,
      capabilities: session.client.capabilities,
      signal: gone,
      ...(isRequestId(meta.progressToken) && { progressToken: meta.progressToken }),
      takesTasks: wish !== undefined,
      ...(services.settings.instance !== 'call' && wish === undefined && { home: exchange.instance }),
      notify,
    },
    ...defined({ task: wish, ttl }),
  };
}

// --- the call ---

/** Where a request may not ask, its server has asked all the same. */
const MAY_NOT_ASK: RpcError = {
  code: -32603,
  message: 'Internal error: the server asked its user inside of a request that cannot wait for an answer',
};

/** Runs or continues a call, in its draft's spelling. */
export async function serveCall(served: Served, incoming: Incoming): Promise<Responding> {
  const { exchange, request } = served;
  const shared = await exchange.instance();
  const prepared = await prepare(served, incoming, shared);
  if ('error' in prepared) return refusal(prepared.error);
  if (incoming.state !== undefined) return resume(served, incoming, prepared);
  const { services, session } = exchange;
  const { settings, engine } = services;
  const { context, binding, params, task, ttl } = prepared;
  const { method, id: requestId } = request;
  const { client } = session;
  // A task may outlive its session.
  const isOwn = settings.instance === 'call' || task !== undefined;
  const { results } = incoming.answers ?? {};
  const started = engine.start(
    {
      method,
      params,
      requestId,
      client,
      binding,
      ...defined({ responses: results, task, ttl }),
    },
    context,
    isOwn ? undefined : shared,
  );
  session.keep(requestId, started);
  const outcome = await started.outcome;
  if (outcome.kind === 'suspended' && !served.dialect.mayAsk(method)) {
    started.cancel();
    return refusal(MAY_NOT_ASK);
  }
  if (outcome.kind === 'responded' && 'result' in outcome.response) {
    await remembered(services, session.state.record(shared, method, params));
  }
  await session.settled();
  return tell(served, announced(served, shared, outcome));
}

/** Tools may be called as tasks, where these are kept here. */
function announced({ exchange, request, dialect }: Served, shared: HostInstance, outcome: Outcome): Outcome {
  if (request.method !== 'tools/list' || !runsTasks(exchange.services, shared.initialized)) return outcome;
  if (outcome.kind !== 'responded' || !('result' in outcome.response)) return outcome;
  exchange.services.marks.learn(exchange.session.principal, outcome.response.result, shared);
  return {
    kind: 'responded',
    response: {
      result: withTaskSupport(exchange.services, outcome.response.result, dialect.revision, shared),
    },
  };
}

async function resume(
  served: Served,
  { state, answers }: Incoming,
  { binding, context }: PreparedCall,
): Promise<Responding> {
  const { services, session, inbound } = served.exchange;
  const errors: ErrorAnswers | undefined = answers?.errors;
  const outcome = await services.engine.resume(state as string, binding, answers?.results, context, errors);
  await session.settled();
  if (isBadToken(outcome)) await services.rates?.badToken(inbound);
  return tell(served, outcome);
}

async function tell({ exchange, dialect }: Served, outcome: Outcome): Promise<Responding> {
  const { services, session } = exchange;
  switch (outcome.kind) {
    case 'gone':
      return { kind: 'gone' };
    case 'task': {
      const view = await tasksOf(services).get(outcome.taskId, session.principal);
      // A task begins as one that is worked on, however far it is by now.
      const task = dialect.task({ ...view, status: 'working' }, services.settings.limits.taskPoll);
      return { kind: 'final', fields: dialect.complete({ task }) };
    }
    case 'suspended':
      return { kind: 'incomplete', asks: outcome.asks, token: outcome.token };
    case 'responded': {
      const { response } = outcome;
      if ('result' in response) return { kind: 'final', fields: dialect.complete(response.result) };
      const error = inDraftWords(response.error);
      return { kind: error.code === -32602 ? 'refused' : 'final', fields: { error } };
    }
  }
}

/**
 * An error as both drafts spell it. They removed -32042: its URLs are asked for, and if none can be, it is a failure.
 * -32021 came with 2026-07-28.
 */
export function inDraftWords({ code, message, data }: RpcError): RpcError {
  const isLater = code === -32021 && isObject(data) && data.requiredCapabilities !== undefined;
  if (code === -32042) return URLS_NEEDED;
  if (isLater) return { code: -32603, message };
  return { code, message, ...defined({ data }) };
}
