/** Converts a draft's request for the engine: its params, the binding of its state, and its context. */

import { isObject, type JsonObject } from '../../src/base/values.ts';
import type { RpcError, TaskWish } from '../../src/call/journal/entries.ts';
import type { Binding, RequestContext } from '../../src/call/ports.ts';
import { bindingOf } from '../../src/call/run/binding.ts';
import { isRequestId } from '../../src/doors/http/reply.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import { sourceOf } from '../session/start.ts';
import { hasOwnTasks, runsTasks, withoutTask } from '../tasks/legacy-wire.ts';
import { wantedTask } from '../tasks/wanted.ts';
import type { Incoming } from './dialect.ts';
import type { Served } from './served.ts';

export interface PreparedCall {
  readonly params: JsonObject;
  readonly binding: Binding;
  readonly context: RequestContext;
  /** When it becomes a task. */
  readonly task?: TaskWish;
  readonly ttl?: number;
}

export async function prepare(
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
  const meta = isObject(_meta) ? _meta : {};
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
    ...(wish !== undefined && { task: wish }),
    ...(ttl !== undefined && { ttl }),
  };
}
