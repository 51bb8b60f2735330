/**
 * One server for a client in several processes: the process that has it serves the others over the relay.
 * It owns the lines between processes, and which clients' servers are here.
 * 1. A process that has a client's server listens under the client's name; one that needs it asks there first.
 * 2. A call of another process goes through a lease of the group that has the server, so turns are granted in one place.
 * 3. When a line (`line.ts`) ends, its calls are lost as if their server had ended.
 * Two processes that start a server for one client at the same moment have one each.
 */
import { digest } from '../base/digest.ts';
import { AwaitError, CANCEL, type JsonObject } from '../base/values.ts';
import type { Response } from '../call/journal/entries.ts';
import type { HandoffParts } from '../call/run/handoff.ts';
import { type Message, responseOf } from '../host/transport.ts';
import type { Group } from './group.ts';
import type { LeaseTransport, PeerLease } from './lease.ts';
import { isRpcMessage, type LinkEvents, type OpenLink, type PeerLink, type PeerLogger } from './link.ts';

/** How long a process that listens may take to answer, in milliseconds. */
const WELCOME = 1_000;

export interface SharingOptions {
  readonly parts: HandoffParts;
  readonly logger: PeerLogger;
  /** What the server is: processes with another command behind the same relay do not share. */
  readonly identity: unknown;
  /** A lease of the group, for another process. */
  readonly lease: (group: Group) => PeerLease;
}

export class Sharing {
  readonly #options: SharingOptions;
  /** The name this process is reached by. */
  readonly #name = crypto.randomUUID();
  readonly #lines = new Map<string, Line>();
  /** Clients whose server is here, with what ends their guests. */
  readonly #owned = new Map<string, { readonly guests: Set<Line>; stop?: () => Promise<void> }>();
  #listening: Promise<() => Promise<void>> | undefined;

  constructor(options: SharingOptions) {
    this.#options = options;
  }

  /** Uses the client's server where it is; starts one where it is nowhere. */
  openLink(key: string, group: () => Group, local: OpenLink): OpenLink {
    return (events) => new EitherLink(events, (heard) => this.#find(key, group, local, heard));
  }

  /** The client's group was closed. */
  release(key: string): void {
    const owned = this.#owned.get(key);
    this.#owned.delete(key);
    void owned?.stop?.().catch(() => {});
    for (const guest of owned?.guests ?? []) guest.end();
  }

  async close(): Promise<void> {
    for (const key of [...this.#owned.keys()]) this.release(key);
    for (const line of [...this.#lines.values()]) line.end();
    const stop = await this.#listening?.catch(() => undefined);
    await stop?.().catch(() => {});
  }

  async #find(key: string, group: () => Group, local: OpenLink, events: LinkEvents): Promise<PeerLink> {
    if (this.#owned.has(key)) return local(events);
    try {
      const found = await this.#ask(key, events);
      if (found !== undefined) return found;
      await this.#own(key, group);
    } catch (error) {
      this.#options.logger.warn('the relay failed; this client has a server of its own here', {
        error,
      });
    }
    return local(events);
  }

  async #ask(key: string, events: LinkEvents): Promise<PeerLink | undefined> {
    await this.#listen();
    const id = crypto.randomUUID();
    const line = this.#newLine(id, undefined, {
      hear: (message) => events.message(message),
      ended: (planned) => events.ended('the process that has it is gone', { planned, elsewhere: true }),
    });
    const isHeard = await this.#send(this.#nameOf(key), { hello: id, from: this.#name });
    if (!isHeard || !(await line.welcomed(WELCOME))) {
      line.forget();
      return undefined;
    }
    return {
      send: (message) => line.say(message),
      close: async () => line.end(),
      kill: () => line.end(),
      elsewhere: true,
    };
  }

  async #own(key: string, group: () => Group): Promise<void> {
    const guests = new Set<Line>();
    const owned: { readonly guests: Set<Line>; stop?: () => Promise<void> } = { guests };
    this.#owned.set(key, owned);
    await this.#listen();
    owned.stop = await this.#hear(this.#nameOf(key), ({ hello, from }) => {
      if (typeof hello !== 'string' || typeof from !== 'string' || !this.#owned.has(key)) return;
      this.#admit(group(), guests, hello, from);
    });
  }

  /** Another process uses this group's server. */
  #admit(group: Group, guests: Set<Line>, id: string, from: string): void {
    const lease = this.#options.lease(group);
    const asks = new Map<string | number, (response: Response) => void>();
    const line = this.#newLine(id, from, {
      hear: (message) => {
        const answered = message.id as string | number;
        if (message.method !== undefined) transport.onmessage?.(message as Message);
        else {
          asks.get(answered)?.(responseOf(message));
          asks.delete(answered);
        }
      },
      ended: () => {
        guests.delete(line);
        lease.close();
      },
    });
    guests.add(line);
    let asked = 0;
    const transport: LeaseTransport = {
      start: async () => {},
      tell: (message) => line.say(message),
      ask: (message, { signal }) => {
        asked += 1;
        const ask = asked;
        signal?.addEventListener('abort', () => {
          if (!asks.delete(ask)) return;
          line.say({ jsonrpc: '2.0', method: CANCEL, params: { requestId: ask } });
        });
        return new Promise((resolve) => {
          asks.set(ask, resolve);
          line.say({ ...message, id: ask });
        });
      },
      lose: (_id, _error, planned) => line.end(planned),
    };
    void lease.connect(transport).then(() => line.welcome());
  }

  #newLine(id: string, to: string | undefined, events: LineEvents): Line {
    const line = new Line(id, to, this.#name, {
      ...events,
      send: (name, message) => this.#send(name, message),
      failed: (error) =>
        this.#options.logger.warn('the relay failed to send; calls of another process are lost here', {
          error,
        }),
      forget: () => this.#lines.delete(id),
    });
    this.#lines.set(id, line);
    return line;
  }

  #listen(): Promise<() => Promise<void>> {
    this.#listening ??= this.#hear(this.#name, (message) =>
      this.#lines.get(String(message.line))?.received(message),
    );
    return this.#listening;
  }

  /** Passes on the messages to a name, and drops those that cannot be opened. */
  #hear(name: string, take: (message: JsonObject) => void): Promise<() => Promise<void>> {
    const { relay, open } = this.#options.parts;
    return relay.listen(name, (text) => void open(text, name).then(take, () => {}));
  }

  #send(name: string, message: JsonObject): Promise<boolean> {
    const { relay, seal } = this.#options.parts;
    return relay.send(name, seal(message, name));
  }

  #nameOf(key: string): string {
    return `server.${digest([this.#options.identity, key])}`;
  }
}

/** A link whose other end is found first. What is sent meanwhile waits. */
class EitherLink implements PeerLink {
  readonly #link: Promise<PeerLink>;
  #opened: PeerLink | undefined;
  #isOver = false;

  constructor(events: LinkEvents, find: (events: LinkEvents) => Promise<PeerLink>) {
    this.#link = find({
      ...events,
      ended: (reason, how) => {
        if (this.#isOver) return;
        this.#isOver = true;
        events.ended(reason, how);
      },
    });
    this.#link.then(
      (link) => {
        this.#opened = link;
      },
      (error: unknown) => events.ended(AwaitError.from(error).message),
    );
  }

  get elsewhere(): boolean {
    return this.#opened?.elsewhere === true;
  }

  get isConcurrent(): boolean {
    return this.#opened?.isConcurrent === true;
  }

  send(message: JsonObject): void {
    if (this.#opened !== undefined) this.#opened.send(message);
    else void this.#link.then((link) => link.send(message)).catch(() => {});
  }

  async close(): Promise<void> {
    await (await this.#link.catch(() => undefined))?.close();
  }

  kill(reason?: string): void {
    if (this.#opened !== undefined) this.#opened.kill(reason);
    else void this.#link.then((link) => link.kill(reason)).catch(() => {});
  }
}

// --- lines to servers elsewhere ---

/**
 * Messages between two processes over the relay. A line delivers in order and once; a gap, a message that cannot be
 * sent, or silence ends it.
 */

/** Time between two signs of life, and how long the other end may be silent, in milliseconds. */
const ALIVE = 1_000;
const SILENT = 10_000;
/** Messages of a line that may arrive before an earlier one. */
const EARLY = 1_000;

interface LineEvents {
  readonly hear: (message: JsonObject) => void;
  /** Called once, however it ended. @param planned the other end lost its server on purpose */
  readonly ended: (planned: boolean) => void;
}

interface LineParts extends LineEvents {
  readonly send: (name: string, message: JsonObject) => Promise<boolean>;
  readonly failed: (error: unknown) => void;
  readonly forget: () => void;
}

/** Messages between two processes, numbered from 1 in each direction. */
class Line {
  readonly #id: string;
  readonly #own: string;
  readonly #parts: LineParts;
  #to: string | undefined;
  #said = 0;
  #heard = 0;
  #heardAt = performance.now();
  readonly #early = new Map<number, JsonObject>();
  #sending: Promise<unknown> = Promise.resolve();
  #onWelcome: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(id: string, to: string | undefined, own: string, parts: LineParts) {
    this.#id = id;
    this.#to = to;
    this.#own = own;
    this.#parts = parts;
    if (to !== undefined) this.#stayAlive();
  }

  say(message: JsonObject): void {
    this.#said += 1;
    this.#post({ n: this.#said, message });
  }

  welcome(): void {
    this.#post({ welcome: true });
  }

  /** @returns whether the other end answered within that time, in milliseconds */
  welcomed(within: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), within);
      this.#onWelcome = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  received({ from, welcome, over, planned, n, message }: JsonObject): void {
    // Where two processes have a server for this client, both welcome it; the first one is used.
    if (this.#to !== undefined && from !== this.#to) return;
    this.#heardAt = performance.now();
    if (welcome === true && this.#to === undefined && typeof from === 'string') {
      this.#to = from;
      this.#stayAlive();
      this.#onWelcome?.();
    }
    if (over === true) this.#ended(planned === true);
    if (typeof n !== 'number' || n <= this.#heard || !isRpcMessage(message)) return;
    this.#early.set(n, message);
    if (this.#early.size > EARLY) this.end();
    for (let next = this.#early.get(this.#heard + 1); next !== undefined && !this.#isOver; ) {
      this.#heard += 1;
      this.#early.delete(this.#heard);
      this.#parts.hear(next);
      next = this.#early.get(this.#heard + 1);
    }
  }

  end(planned = false): void {
    if (this.#isOver) return;
    this.#post({ over: true, planned });
    this.#ended(planned);
  }

  /** No process answered: nothing is sent. */
  forget(): void {
    this.#isOver = true;
    this.#parts.forget();
  }

  #post(body: JsonObject): void {
    const to = this.#to;
    if (to === undefined || this.#isOver) return;
    const message = { line: this.#id, from: this.#own, ...body };
    this.#sending = this.#sending
      .then(() => this.#parts.send(to, message))
      .then(
        (isHeard) => isHeard || this.#ended(),
        (error: unknown) => {
          if (this.#isOver) return;
          this.#parts.failed(error);
          // The other end may hear a shorter message.
          this.end();
        },
      );
  }

  #stayAlive(): void {
    this.#timer = setInterval(() => {
      // A message that is late by that much was lost.
      if (performance.now() - this.#heardAt > SILENT) this.end();
      else this.#post({ alive: true });
    }, ALIVE).unref();
  }

  #ended(planned = false): void {
    if (this.#isOver) return;
    this.forget();
    clearInterval(this.#timer);
    this.#parts.ended(planned);
  }
}
