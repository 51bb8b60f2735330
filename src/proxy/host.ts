/**
 * A server that runs elsewhere, as a host of `createAwaitHandler`: decides which client uses which servers.
 * 1. A session has servers of its own, which end with its last instance in any process, or earlier where another client
 *    needs the room.
 * 2. Without sessions a known caller has servers, separate by the client's capabilities, name and version,
 *    kept while they are used. Unknown callers share theirs if the connection comes from this machine, unforwarded, or
 *    `shared` says so; otherwise each call has a server of its own.
 *
 * A child process and a remote server are hosts like any other: `stdioHost` is a factory, and its product, a
 * `Lease`, has `connect(transport)`. The instance, the engine and the revisions see no difference. Behind the lease:
 *
 * 1. A `Link` carries JSON-RPC messages to one far side: a child's pipes (`child.ts`), or HTTP (`remote.ts`).
 * 2. A `Peer` is one far side that answered `initialize`. It gives each request an id of its own, which is its
 *    progress token too, and has one turn: the server's asks go to the call that has the turn, because on a pipe an
 *    ask names no request. The lease names that call by `relatedRequestId`, as an SDK would.
 * 3. A `Group` is the peers of one client, usually one. It grants turns, limits the queue, starts a missing peer
 *    (with a pause that grows), and gives a new one the session's settings.
 * 4. The pool in `host.ts` decides which client gets which group: a session its own; else the caller with its
 *    capabilities; else, on this machine, one for all.
 * 5. A lost call. Before a call is sent, the lease records in the call's journal, as a step whose name no tool can
 *    give, that it is sent and whether it may run again (`replay-rule.ts`). So the journal decides `replay`, in any
 *    process, and a call that was never sent, or certainly not taken, always runs. When a peer ends, the frame of its
 *    call ends with `lost`, and the engine replays the call in a new frame in the same turn; a parked frame is dropped and replayed with
 *    the next request.
 * 6. A peer whose call may run again is ended shortly before its SDK gives up on an ask: otherwise the tool's
 *    `catch` would run.
 * 7. A call that another process continued or ended. While a call is parked, the engine reads the next position of
 *    its journal once a second (`lookAtParked` in `src/call/run/ownership.ts`; only for servers behind a link, whose
 *    parked calls keep the turn). An entry of another process there means that the frame is of no more use: it is
 *    dropped, and the peer of its call is ended, so that no `catch` runs; in an instance that other calls use, the
 *    call is cancelled instead.
 * 8. The watchdog (`child.ts`) is a shell that outlives this process by two seconds and kills the remaining process groups.
 */
import { Budget, type OpenAccount } from '../base/budget.ts';
import { digest, sha256 } from '../base/digest.ts';
import { Quota } from '../base/quota.ts';
import { AwaitError, badOption, checkAtLeast, type JsonObject } from '../base/values.ts';
import type { CallRecord, Client, Completion } from '../call/journal/entries.ts';
import type { HandoffParts } from '../call/run/handoff.ts';
import type { FactoryContext, HostProduct } from '../host/host.ts';
import type { HostServer } from '../host/protocol.ts';
import { LATEST, NOBODY, SPOKEN } from '../host/spoken.ts';
import type { Message } from '../host/transport.ts';
import { type EraWay, UPSTREAMS, Upstream, type UpstreamOption } from './era.ts';
import { Group } from './group.ts';
import { type LeaseOptions, type LeaseTransport, PeerLease } from './lease.ts';
import type { OpenLink, PeerLogger } from './link.ts';
import { type Replay, replayRule } from './replay-rule.ts';
import { Sharing } from './sharing.ts';

/** Options that `stdioHost` and `remoteHost` share. */
export interface PeerHostOptions {
  /** Servers of one client that run at once. Default 1: the server's memory is in one place. */
  readonly children?: number;
  /**
   * Servers of all clients. Default 100; the ones that were idle longest make room. A known caller has half of them at
   * most, and so have all anonymous ones, once a known caller has come.
   */
  readonly maxChildren?: number;
  /** Whether callers that are not known share servers wherever they come from. Default false. */
  readonly shared?: boolean;
  /**
   * Which calls are run again from their start after their server ended. Default `safe`: those not yet sent to it,
   * `prompts/get`, `resources/read`, and tools with `readOnlyHint` or `idempotentHint`. `allow`: all.
   */
  readonly replay?: Replay;
  /** Calls of one client that may wait for a server. Default 100. */
  readonly queue?: number;
  /** How long one may wait, in milliseconds. Default one minute. */
  readonly queueWait?: number;
  /** How long a server may take to answer `initialize`, in milliseconds. Default 30 s. */
  readonly startTimeout?: number;
  /** When the server's SDK gives up on an ask, in milliseconds; 0: never. Default 60 s. */
  readonly askTimeout?: number;
  /** How long a server without work is kept for its caller, in milliseconds. Default five minutes. */
  readonly idle?: number;
  /**
   * The revision in which the server is spoken to. Default `auto`: a remote server in 2026-07-28 where it knows that, a
   * command in 2025-11-25 where it knows that, else in the other. `2025-11-25` stands for all with `initialize`.
   */
  readonly upstream?: UpstreamOption;
  /** How long a cancelled call may take to end before the next one is sent, in milliseconds. Default 2 s. */
  readonly cancelGrace?: number;
}

/** A server in another process, as a factory: the product of `stdioHost` and `remoteHost`. */
export interface PeerHost {
  (context: FactoryContext): Promise<HostProduct>;
  /** Whether a call may be run again, by its journal. */
  readonly mayReplay: (call: CallRecord, done: readonly Completion[]) => 'allow' | 'never';
  /** Whether a call that waits for an answer needs nothing of its server meanwhile, as far as that is known. */
  readonly outlives: () => boolean;
  /**
   * Called by the handler: sets the receivers of its servers' log and of messages outside of calls, and the relay over
   * which processes use one another's servers.
   */
  attach(logger: PeerLogger, outside: (notification: JsonObject) => void, relay?: HandoffParts): void;
  /**
   * Starts a server and ends it, so that a wrong command fails before the first call. @throws AwaitError `host-gone`
   */
  check(): Promise<JsonObject>;
  /** Waits for calls that run here for other processes, for so long in milliseconds, and takes no more of them. */
  leave(wait: number): Promise<void> | undefined;
  /** Ends every server. */
  close(): Promise<void>;
}

export function isPeerHost(factory: object): factory is PeerHost {
  return 'mayReplay' in factory && 'attach' in factory;
}

const SILENT: PeerLogger = { debug: () => {}, info: () => {}, warn: () => {} };
/** How often servers without work are looked for, in milliseconds. */
const LOOK_EVERY = 10_000;
/**
 * Bytes that are held of all servers: messages that are not whole or wait to be passed on, and open asks. Half of them
 * are one known caller's at most, and half are all anonymous callers'.
 */
const RECEIVED_BYTES = 134_217_728;
/** Of these, bytes of one account that do not count. */
const FREE_BYTES = 524_288;

/**
 * @param name the name of its servers in the log
 * @param identity the command or the URL, in a form that is equal in all processes that may share servers over the relay
 * @param waysOf how one is started, or connected to, in each era; the way that is tried first is the first
 * @param tokenOf the token of its caller, where a server is sent that: no server is then shared by two tokens
 */
export function peerHost(
  name: string,
  options: PeerHostOptions,
  identity: unknown,
  waysOf: (parts: LinkParts) => readonly EraWay[],
  tokenOf: TokenOf = () => ({}),
): PeerHost {
  const settings = checked(options);
  const upstream = new Upstream(settings.upstream);
  const openLink: OpenLinkFor = (parts) => upstream.open(waysOf(parts));
  const pool = new Pool({ name, options: settings, identity, upstream, openLink, tokenOf });
  return Object.assign((context: FactoryContext) => pool.lease(context), {
    mayReplay: replayRule(settings.replay),
    outlives: () => settings.replay === 'allow' || upstream.era === '2026-07-28',
    attach: (logger: PeerLogger, outside: (notification: JsonObject) => void, relay?: HandoffParts) =>
      pool.attach(logger, outside, relay),
    check: () => pool.check(),
    leave: (wait: number) => pool.sharing?.leave(wait),
    close: () => pool.close(),
  });
}

/** For whom a server is started, or connected to. */
export interface LinkParts {
  readonly logger: PeerLogger;
  /** Whether somebody hears what it says outside of requests. */
  readonly listens: boolean;
  /** The known caller that it is for. */
  readonly caller: string | undefined;
  /** The token that it is sent. */
  readonly token: string | undefined;
  /** Opens an account of what is held of the server; where that breaks off, the server is ended. */
  readonly account: OpenAccount;
}

type OpenLinkFor = (parts: LinkParts) => OpenLink;
/** `missing`: the server wants its caller's token, which is not here. */
type TokenOf = (context: FactoryContext) => { readonly token?: string } | 'missing';

interface PoolParts {
  readonly name: string;
  readonly options: Required<PeerHostOptions>;
  readonly identity: unknown;
  readonly upstream: Upstream;
  readonly openLink: OpenLinkFor;
  readonly tokenOf: TokenOf;
}

class Pool {
  readonly #parts: PoolParts;
  readonly #groups = new Map<string, Group>();
  readonly #received = new Budget(RECEIVED_BYTES, FREE_BYTES);
  #logger: PeerLogger = SILENT;
  sharing: Sharing | undefined;
  #outside: (notification: JsonObject) => void = () => {};
  #timer: NodeJS.Timeout | undefined;
  #alone = 0;
  /** Whether a known caller came: then all anonymous ones have half of the servers at most. */
  #hasKnown = false;
  #closed = false;

  constructor(parts: PoolParts) {
    this.#parts = parts;
  }

  attach(logger: PeerLogger, outside: (notification: JsonObject) => void, relay?: HandoffParts): void {
    this.#logger = logger;
    this.#outside = outside;
    if (relay === undefined) return;
    this.sharing = new Sharing({
      parts: relay,
      logger,
      identity: this.#parts.identity,
      lease: (group) => this.#newLease(group, { isGuest: true }),
    });
  }

  async check(): Promise<JsonObject> {
    const group = this.#newGroup(NOBODY);
    try {
      return (await group.peer()).initialized;
    } finally {
      void group.close();
    }
  }

  async lease(context: FactoryContext): Promise<HostProduct> {
    if (this.#closed) throw new AwaitError('closed', `${this.#parts.name} was closed`);
    const client: Client = {
      capabilities: context.clientCapabilities,
      info: context.clientInfo,
      protocolVersion: SPOKEN.has(context.revision) ? context.revision : LATEST,
    };
    const known = this.#parts.tokenOf(context);
    if (known === 'missing') return withoutToken();
    const { token } = known;
    const key = this.#keyOf(context, client, token);
    const owner = { caller: context.principal, token };
    const group = this.#groups.get(key) ?? this.#newGroup(client, key, owner);
    this.#groups.set(key, group);
    const isAnonymous = context.principal === undefined;
    this.#hasKnown ||= !isAnonymous;
    const isShared = this.#parts.options.shared && isAnonymous && context.sessionId === undefined;
    const lease = this.#newLease(group, { isShared, token });
    if (context.sessionId !== undefined) group.sayOutside(lease);
    try {
      await group.peer();
    } catch (error) {
      lease.close();
      // A client may name itself anew each time.
      if (group.leases.size === 0) void group.close();
      throw error;
    }
    return { server: lease, cleanup: () => lease.close() };
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await Promise.all([...this.#groups.values()].map((group) => group.close()));
    await this.sharing?.close();
  }

  #keyOf(context: FactoryContext, client: Client, token: string | undefined): string {
    const { principal, sessionId, isLocal } = context;
    const of = token === undefined ? '' : ` ${sha256(token)}`;
    if (sessionId !== undefined) return `session ${sessionId}${of}`;
    if (principal !== undefined) return `caller ${digest([principal, client])}${of}`;
    if (isLocal || this.#parts.options.shared) return `anyone ${digest(client)}${of}`;
    this.#alone += 1;
    return `call ${this.#alone}`;
  }

  #newLease(group: Group, own: Partial<LeaseOptions>): PeerLease {
    const { replay, cancelGrace } = this.#parts.options;
    const lease = new PeerLease(group, {
      logger: this.#logger,
      replay,
      cancelGrace,
      ...own,
    });
    group.leases.add(lease);
    return lease;
  }

  #newGroup(
    client: Client,
    key = 'call 0',
    owner: Pick<LinkParts, 'caller' | 'token'> = { caller: undefined, token: undefined },
  ): Group {
    this.#timer ??= setInterval(() => this.#endIdle(), LOOK_EVERY).unref();
    const { name, options, upstream, openLink } = this.#parts;
    const account: OpenAccount = (breakOff) => this.#received.open({ principal: owner.caller }, breakOff);
    const isOfCall = key.startsWith('call ');
    const local = openLink({ logger: this.#logger, listens: !isOfCall, account, ...owner });
    // Servers of 2026-07-28 keep nothing of a client: each process has its own.
    const sharing = isOfCall || upstream.era === '2026-07-28' ? undefined : this.sharing;
    const group: Group = new Group(
      client,
      {
        ...options,
        name,
        logger: this.#logger,
        account,
        openLink: local,
        find: async () => sharing?.find(key, () => group),
        caller: owner.caller,
        isKept: !isOfCall && !isOfSession(key),
        makeRoom: () => this.#makeRoom(group),
        onClose: () => {
          this.#groups.delete(key);
          sharing?.release(key);
        },
      },
      { notification: (message) => this.#outside(message) },
    );
    return group;
  }

  /** @throws AwaitError `no-room` when all servers have work, or their sessions are in use */
  async #makeRoom({ caller: principal }: Group): Promise<void> {
    const all = this.#parts.options.maxChildren;
    const half = Math.ceil(all / 2);
    const places = new Quota<[string, Group]>({ all, caller: half, anonymous: this.#hasKnown ? half : all });
    const entries = [...this.#groups].sort(([, a], [, b]) => a.used - b.used);
    for (const entry of entries) places.hold(entry, { principal: entry[1].caller }, entry[1].size);
    const ended: Promise<void>[] = [];
    const end = (entry: [string, Group]): void => void ended.push(this.#end(...entry));
    // What strangers took before the first known caller came is ended for one, whatever it does.
    if (principal !== undefined && places.lacks({ principal }) === 'all') places.makeRoom({}, 0, end);
    const lack = places.makeRoom({ principal }, 1, end, ([, group]) => !group.busy);
    await Promise.all(ended);
    if (lack === undefined) return;
    const most = lack === 'all' ? all : half;
    throw new AwaitError('no-room', `${most} servers are in use already; raise maxChildren`);
  }

  #endIdle(): void {
    const now = performance.now();
    for (const [key, group] of this.#groups) {
      if (group.busy) group.used = now;
      else if (!isOfSession(key) && group.used <= now - this.#parts.options.idle) void this.#end(key, group);
    }
  }

  /** Ends a client's servers. A session goes on, as after its server's end. */
  #end(key: string, group: Group): Promise<void> {
    return isOfSession(key) ? group.rest() : group.close();
  }
}

function isOfSession(key: string): boolean {
  return key.startsWith('session ');
}

const DEFAULTS: Required<PeerHostOptions> = {
  children: 1,
  maxChildren: 100,
  shared: false,
  replay: 'safe',
  queue: 100,
  queueWait: 60_000,
  startTimeout: 30_000,
  askTimeout: 60_000,
  idle: 300_000,
  cancelGrace: 2_000,
  upstream: 'auto',
};

function checked(options: PeerHostOptions): Required<PeerHostOptions> {
  const settings: Required<PeerHostOptions> = { ...DEFAULTS, ...options };
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    if (typeof usual === 'number')
      checkAtLeast(
        /children|startTimeout/i.test(name) ? 1 : 0,
        name,
        settings[name as keyof PeerHostOptions],
      );
  }
  const choices: Record<'replay' | 'upstream', readonly string[]> = {
    replay: ['safe', 'allow', 'never'],
    upstream: UPSTREAMS,
  };
  for (const [name, values] of Object.entries(choices)) {
    const value = String(settings[name as keyof typeof choices]);
    if (!values.includes(value)) throw badOption(name, `must be ${values.join(', ')}, not ${value}`);
  }
  return settings;
}

// --- without a token ---

/**
 * Stands for a server that cannot be asked: it wants its caller's own token, and there is none, as in a task that
 * another process takes over. Each request gets an error, so that its call ends.
 */

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
      'Internal error: the server wants the access token of this caller, which is not stored, so this call cannot go on',
  },
};

function withoutToken(): HostServer {
  return {
    connect: (transport: LeaseTransport) => {
      transport.onmessage = ({ id, method }: Message) => {
        if (id === undefined || method === undefined) return;
        const response = method === 'initialize' ? INITIALIZED : REFUSED;
        transport.tell({ jsonrpc: '2.0', id, ...response });
      };
      return transport.start();
    },
  };
}
