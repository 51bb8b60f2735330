/**
 * Instances that outlive the call or session that they were made for: one for each known caller, or one for the process
 * (`instance: 'caller' | 'process'`). Each user of an instance holds a lease; after the last lease it is kept for a
 * while, or for the life of the process.
 * `initialize` sets the instance's client, so clients that differ in it share no instance: a server that believes that
 * it cannot ask acts without asking. An instance's key holds all facts in which its clients must agree.
 */
import { Quota } from '../base/quota.ts';
import type { JsonObject } from '../base/values.ts';
import type { Frame } from '../call/frame/frame.ts';
import type { Response } from '../call/journal/entries.ts';
import type { InstanceContext } from '../call/ports.ts';
import type { Guards } from './guards.ts';
import type { HostInstance, LiveInstance, SentRequest } from './instance.ts';
import type { Outside } from './router.ts';
import type { Message } from './transport.ts';

export interface KeptOptions {
  /** How long an unused instance is kept, in milliseconds; undefined: for the life of the process. */
  readonly idle: number | undefined;
  /**
   * Most unused instances that are kept. Beyond it the least recently used one is closed that no known caller has used;
   * if there is none, one of the known caller that has most.
   */
  readonly most: number;
}

interface KeptInstance {
  readonly key: string;
  /** The known caller that used it first: strangers who use it too do not change whose it is. */
  principal?: string | undefined;
  readonly opened: Promise<LiveInstance>;
  /** Who uses it, the newest last. */
  readonly leases: Set<InstanceLease>;
  timer?: NodeJS.Timeout;
}

interface KeptUse {
  readonly outside: Outside;
  readonly isCall: boolean;
  readonly principal: string | undefined;
}

export class KeptInstances {
  readonly #idle: number | undefined;
  readonly #kept = new Map<string, KeptInstance>();
  readonly #unused: Quota<KeptInstance>;

  constructor({ idle, most }: KeptOptions) {
    this.#idle = idle;
    this.#unused = new Quota({ all: most });
  }

  /**
   * @param outside receives messages that belong to no call of this lease
   * @param isCall whether the lease ends with its call
   * @param principal the known caller for whom it is
   * @throws any error of `open`; the next one tries again
   */
  async lease(
    key: string,
    { outside, isCall, principal }: KeptUse,
    open: (outside: Outside) => Promise<LiveInstance>,
  ): Promise<HostInstance> {
    let kept = this.#kept.get(key);
    if (kept === undefined) {
      const leases = new Set<InstanceLease>();
      kept = { key, opened: open(outsideOf(leases)), leases };
      this.#kept.set(key, kept);
    }
    clearTimeout(kept.timer);
    kept.principal ??= principal;
    this.#unused.leave(kept);
    const lease = new InstanceLease(outside, isCall, () => this.#over(kept, lease));
    kept.leases.add(lease);
    try {
      lease.begin(await kept.opened);
      return lease;
    } catch (error) {
      if (this.#kept.get(key) === kept) this.#kept.delete(key);
      throw error;
    }
  }

  close(): void {
    for (const kept of this.#kept.values()) this.#end(kept);
  }

  #over(kept: KeptInstance, lease: InstanceLease): void {
    kept.leases.delete(lease);
    if (kept.leases.size > 0 || this.#kept.get(kept.key) !== kept) return;
    if (this.#idle !== undefined) kept.timer = setTimeout(() => this.#end(kept), this.#idle).unref();
    this.#unused.hold(kept, kept);
    this.#unused.makeRoom(kept, 0, (oldest) => this.#end(oldest));
  }

  #end(kept: KeptInstance): void {
    clearTimeout(kept.timer);
    this.#unused.leave(kept);
    this.#kept.delete(kept.key);
    kept.opened.then(
      (instance) => instance.close(),
      () => {},
    );
  }
}

/** Notifications outside of calls go to all users of the instance; asks go to the latest one. */
function outsideOf(leases: ReadonlySet<InstanceLease>): Outside {
  const leaseOf = (frame: Frame): InstanceLease | undefined => [...leases].find((lease) => lease.has(frame));
  return {
    notification: (message, frame) => {
      const owner = frame && leaseOf(frame);
      const teller = owner ?? [...leases].find(({ outside }) => outside.isForAll);
      for (const lease of leases)
        if (!lease.outside.isForAll || lease === teller)
          lease.outside.notification(message, lease === owner ? frame : undefined);
    },
    inReply: (message, frame) => leaseOf(frame)?.outside.inReply?.(message, frame) === true,
    request: (message) => [...leases].at(-1)?.outside.request(message) ?? new Promise(() => {}),
    requestIn: (message, frame) => leaseOf(frame)?.outside.requestIn?.(message, frame),
    error: (error) => [...leases].at(-1)?.outside.error(error),
  };
}

/** One user's hold of an instance that others may use, too. */
class InstanceLease implements HostInstance {
  readonly outside: Outside;
  readonly #isCall: boolean;
  readonly #onOver: () => void;
  readonly #frames = new Set<Frame>();
  #instance: LiveInstance | undefined;
  #isOver = false;

  constructor(outside: Outside, isCall: boolean, onOver: () => void) {
    this.outside = outside;
    this.#isCall = isCall;
    this.#onOver = onOver;
  }

  begin(instance: LiveInstance): void {
    this.#instance = instance;
  }

  has(frame: Frame): boolean {
    return this.#frames.has(frame);
  }

  get #live(): LiveInstance {
    if (this.#instance === undefined) throw new Error('a lease of an instance that is not open');
    return this.#instance;
  }

  get initialized(): JsonObject {
    return this.#live.initialized;
  }

  get forbids(): boolean {
    return this.#live.forbids;
  }

  get guards(): Guards | undefined {
    return this.#live.guards;
  }

  get unfinished(): boolean {
    return [...this.#frames].some(({ over }) => !over);
  }

  handles(method: string): boolean {
    return this.#live.handles(method);
  }

  request(...of: Parameters<HostInstance['request']>): Promise<Response> {
    return this.#live.request(...of);
  }

  call(frame: Frame, request: SentRequest, context: InstanceContext): void {
    for (const known of this.#frames) if (known.over) this.#frames.delete(known);
    this.#frames.add(frame);
    this.#live.call(frame, request, context);
  }

  refresh(frame: Frame, context: InstanceContext): void {
    this.#live.refresh(frame, context);
  }

  cancel(frame: Frame, reason?: string): void {
    this.#live.cancel(frame, reason);
  }

  notify(message: Message): void {
    this.#live.notify(message);
  }

  stray(response: Message): void {
    this.#live.stray(response);
  }

  release(unfinished: boolean, frame?: Frame, why?: string): void {
    this.#live.release(unfinished, frame, why);
    if (unfinished && frame) this.#frames.delete(frame);
    if (this.#isCall) this.close();
  }

  /** Removes this lease's calls from the instance, which continues for others. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const frame of this.#frames) this.#live.abandon(frame);
    this.#frames.clear();
    this.#onOver();
  }
}
