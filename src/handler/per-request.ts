/**
 * A handler for Cloudflare Workers: each request has a handler of its own, closed when its response is complete. So no
 * frame is kept, and every call is resumed by replay, from its token or from the store. Only plain data is shared: the
 * settings, the counters and the connections.
 */
import type { Inbound, SentReply } from '../doors/http/exchange.ts';
import { Traffic } from '../doors/http/traffic.ts';
import { type Counters, newCounters } from '../observe/counters.ts';
import { type AwaitHandler, fetchOver } from './await-handler.ts';
import type { Settings } from './settings.ts';

type Make = (settings: Settings, counters: Counters, traffic: Traffic) => AwaitHandler;

export function handlerPerRequest(given: Settings, make: Make): AwaitHandler {
  const settings: Settings = { ...given, warnUnjournaled: false, limits: { ...given.limits, frames: 0 } };
  const counters = newCounters();
  const traffic = new Traffic(settings.limits, counters);
  let isLeaving = false;
  let closed = false;

  const serve = async (inbound: Inbound): Promise<SentReply> => {
    const handler = make(settings, counters, traffic);
    // A closed handler's refusal says that it is closed.
    if (closed) await handler.close();
    const reply = await handler.serve(inbound);
    const { body } = reply;
    if (typeof body !== 'function') {
      await handler.close();
      return reply;
    }
    return {
      ...reply,
      body: (writer) => {
        writer.onClose(() => void handler.close());
        body(writer);
      },
    };
  };

  const once = async <T>(use: (handler: AwaitHandler) => Promise<T>): Promise<T> => {
    const handler = make(settings, counters, traffic);
    try {
      return await use(handler);
    } finally {
      await handler.close();
    }
  };

  return {
    serve,
    fetch: fetchOver(serve),
    check: () => once((handler) => handler.check()),
    suspended: (caller) => once((handler) => handler.suspended(caller)),
    notify: {
      toolsChanged: () => once((handler) => handler.notify.toolsChanged()),
      promptsChanged: () => once((handler) => handler.notify.promptsChanged()),
      resourcesChanged: () => once((handler) => handler.notify.resourcesChanged()),
      resourceUpdated: (uri) => once((handler) => handler.notify.resourceUpdated(uri)),
    },
    forget: (caller) => once((handler) => handler.forget(caller)),
    leave: async () => {
      isLeaving = true;
    },
    close: async () => {
      isLeaving = true;
      closed = true;
    },
    release: () => once((handler) => handler.release()),
    health: () =>
      once(async (handler) => {
        if (isLeaving) await handler.leave();
        return handler.health();
      }),
    counters,
    traffic,
    nameOf: (authInfo) => make(settings, counters, traffic).nameOf(authInfo),
    disconnect: (caller) => traffic.connections.close(caller),
    parked: 0,
  };
}
