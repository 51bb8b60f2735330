/** A request of a session, with what serves it. */

import type { Inbound } from '../../src/doors/http/exchange.ts';
import type { Services } from '../../src/handler/services.ts';
import type { HostInstance } from '../../src/host/instance.ts';
import type { Outside } from '../../src/host/router.ts';
import { openInstance } from './initialize.ts';
import type { Session } from './session.ts';
import type { News } from './state.ts';

export interface Exchange {
  readonly services: Services;
  readonly session: Session;
  readonly inbound: Inbound;
  /** The session's instance. */
  readonly instance: () => Promise<HostInstance>;
  /** The same as a function; undefined if each call has an instance of its own. */
  readonly home: (() => Promise<HostInstance>) | undefined;
}

/** @param news the session's records, read once for the whole request, except for work that runs on after it */
export function exchangeOf(services: Services, session: Session, inbound: Inbound, news?: News): Exchange {
  const open = (outside: Outside): Promise<HostInstance> => openInstance(services, session, inbound, outside);
  let ready: Promise<HostInstance> | undefined;
  const instance = (): Promise<HostInstance> => {
    ready ??= session.ready(open, news);
    return ready;
  };
  const home = services.settings.instance === 'call' ? undefined : () => session.ready(open);
  return { services, session, inbound, instance, home };
}
