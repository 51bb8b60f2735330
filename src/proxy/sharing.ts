/**
 * One server for a client in several processes: the process that has it serves the others over the relay.
 * It owns the lines between processes, and which clients' servers are here.
 * 1. A process that has a client's server listens under the client's name; one that needs it asks there first.
 * 2. A call of another process goes through a lease of the group that has the server, so turns are granted in one place.
 * 3. When a line ends, its calls are lost as if their server had ended.
 * Two processes that start a server for one client at the same moment have one each.
 */
import { digest } from '../base/digest.ts';
import { CANCEL, hasCode, type JsonObject, sleep, systemClock, within } from '../base/values.ts';
import type { Response } from '../call/journal/entries.ts';
import { RelayListener } from '../call/ports.ts';
import type { HandoffParts } from '../call/run/handoff.ts';
import { type Message, responseOf } from '../host/transport.ts';
import type { Group } from './group.ts';
import type { LeaseTransport, PeerLease } from './lease.ts';
import { isRpcMessage, type LinkEvents, type OpenLink, type PeerLogger } from './link.ts';

/** How long a process that listens may take to answer, in milliseconds. */
const WELCOME = 1_000;
/** How often a process that leaves looks whether the calls of others have ended, in milliseconds. */
const LOOK_EVERY = 50;

export interface SharingOptions {
  readonly parts: HandoffParts;
  readonly logger: PeerLogger;
  /** What the server is: processes with another command behind the same relay do not share. */
  readonly identity: unknown;
  /** A lease of the group, for another process. */
  readonly lease: (group: Group) => PeerLease;
}

interface Owned {
  /** The lines of other processes, and what they use of the group. */
  readonly guests: Map<Line, PeerLease>;
  readonly listening: RelayListener;
}

export class Sharing {
  readonly #options: SharingOptions;
  /** The name this process is reached by. */
  readonly #name = crypto.randomUUID();
  readonly #lines = new Map<string, Line>();
  /** Clients whose server is here, with what ends their guests. */
  readonly #owned = new Map<string, Owned>();
  /** Until when calls of others are waited for, once this process leaves. */
  #until: number | undefined;
  #listening: RelayListener | undefined;

  constructor(options: SharingOptions) {
    this.#options = options;
  }

  /** Finds a client's server in another process. Without one it is this process's to start, which others then find. */
  async find(key: string, group: () => Group): Promise<OpenLink | undefined> {
    if (this.#owned.has(key)) return undefined;
    const found = await this.#ask(key);
    if (found === undefined) this.#own(key, group);
    return found;
  }

  /** The client's group was closed. */
  release(key: string): void {
    const owned = this.#owned.get(key);
    this.#owned.delete(key);
    void owned?.listening.close();
    for (const guest of owned?.guests.keys() ?? []) guest.end();
  }

  /**
   * Lets no other process in any more, and waits until the calls of others here are over. A process without a call here
   * is let go at once.
   * @param wait how long, in milliseconds
   */
  async leave(wait: number): Promise<void> {
    this.#until ??= performance.now() + wait;
    while (performance.now() < this.#until) {
      const guests = [...this.#owned.values()].flatMap(({ guests }) => [...guests]);
      const idle = guests.filter(([line, lease]) => !lease.isBusy && line.unheard.size === 0);
      for (const [line] of idle) line.end(true);
      if (idle.length === guests.length) return;
      await sleep(systemClock, LOOK_EVERY);
    }
  }

  async close(): Promise<void> {
    for (const key of [...this.#owned.keys()]) this.release(key);
    for (const line of [...this.#lines.values()]) line.end();
    await this.#listening?.close();
  }

  async #ask(key: string): Promise<OpenLink | undefined> {
    this.#listening ??= this.#hear(this.#name, (message) =>
      this.#lines.get(String(message.line))?.received(message),
    );
    await this.#listening.asked;
    if (!this.#listening.isOn) return undefined;
    const id = crypto.randomUUID();
    let events: LinkEvents | undefined;
    const ended = (planned = false): void =>
      events?.ended('the process that has it is gone', { planned, elsewhere: true });
    const line = this.#newLine(id, undefined, { hear: (message) => events?.message(message), ended });
    if (!(await line.welcomed(this.#send(this.#nameOf(key), { hello: id, from: this.#name }))))
      return undefined;
    return (opened) => {
      events = opened;
      if (line.isOver) ended();
      return {
        send: (message) => line.say(message),
        close: async () => line.end(),
        kill: () => line.end(),
        elsewhere: true,
      };
    };
  }

  #own(key: string, group: () => Group): void {
    const guests = new Map<Line, PeerLease>();
    const listening = this.#hear(this.#nameOf(key), ({ hello, from }) => {
      if (typeof hello === 'string' && typeof from === 'string' && this.#owned.has(key) && !this.#until)
        this.#admit(group(), guests, hello, from);
    });
    this.#owned.set(key, { guests, listening });
  }

  /** Another process uses this group's server. */
  #admit(group: Group, guests: Map<Line, PeerLease>, id: string, from: string): void {
    const lease = this.#options.lease(group);
    const asks = new Map<string | number, (response: Response) => void>();
    const line = this.#newLine(id, from, {
      hear: (message) => {
        const answered = message.id as string | number;
        const isNew = message.method !== undefined && message.id !== undefined;
        // The process that sent it opens another server for it.
        if (isNew && this.#until && !lease.isBusy) line.end(true);
        else if (message.method !== undefined) transport.onmessage?.(message as Message);
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
    guests.set(line, lease);
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
      isUsed: () => false,
    };
    void lease.connect(transport).then(() => line.welcome());
  }

  #newLine(id: string, to: string | undefined, events: LineEvents): Line {
    const line = new Line(to, {
      ...events,
      send: (name, message) => this.#send(name, { line: id, from: this.#name, ...message }),
      failed: (error) => this.#options.logger.warn('the relay failed to send', { error }),
      forget: () => this.#lines.delete(id),
    });
    this.#lines.set(id, line);
    return line;
  }

  /** Passes on the messages to a name, and drops those that cannot be opened. */
  #hear(name: string, take: (message: JsonObject) => void): RelayListener {
    const { relay, open } = this.#options.parts;
    return new RelayListener(
      relay,
      name,
      (text) => void open(text, name).then(take, () => {}),
      (...said) => this.#options.logger.warn(...said),
    );
  }

  async #send(name: string, message: JsonObject): Promise<boolean> {
    const { relay, seal } = this.#options.parts;
    return relay.send(name, seal(message, name));
  }

  #nameOf(key: string): string {
    return `server.${digest([this.#options.identity, key])}`;
  }
}

// --- lines to servers elsewhere ---

/**
 * Messages between two processes over the relay. A line delivers in order and once: what the other end has not heard
 * is sent again. It waits for a relay that fails; silence, or a message that no relay carries, ends it.
 */

/** Time between two signs of life, in milliseconds. */
const ALIVE = 1_000;
/** How long the other end may be silent over a relay that works, in milliseconds. */
const SILENT = 10_000;
/** Messages of a line that may arrive before an earlier one: more than a server sends until that is sent again. */
const EARLY = 10_000;

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

/** Messages between two processes, numbered from 1 in each direction; each one says how many its sender has heard. */
class Line {
  readonly #parts: LineParts;
  #to: string | undefined;
  #said = 0;
  #heard = 0;
  readonly #early = new Map<number, JsonObject>();
  #heardAt = performance.now();
  /** What was said and may not have been heard. */
  readonly unheard = new Map<number, JsonObject>();
  /** The last of those that were said before the last sign of life. */
  #late = 0;
  /** Messages that are on their way to the relay. */
  #queued = 0;
  /** Whether the relay did not take the last one. */
  #fails = false;
  #sending: Promise<unknown> = Promise.resolve();
  #onWelcome: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  isOver = false;

  constructor(to: string | undefined, parts: LineParts) {
    this.#to = to;
    this.#parts = parts;
    if (to !== undefined) this.#stayAlive();
  }

  say(message: JsonObject): void {
    this.#said += 1;
    this.unheard.set(this.#said, message);
    this.#post({ n: this.#said, message });
  }

  welcome(): void {
    this.#post({ welcome: true });
  }

  /**
   * @param asked whether somebody is there
   * @returns whether the other end answered in time; else the line is forgotten
   */
  async welcomed(asked: Promise<boolean>): Promise<boolean> {
    const welcome = new Promise<void>((resolve) => (this.#onWelcome = resolve));
    await within(
      systemClock,
      WELCOME,
      asked.then((isThere) => (isThere ? welcome : undefined)),
    );
    if (this.#to === undefined) this.forget();
    return !this.isOver;
  }

  received({ from, welcome, over, planned, heard, n, message }: JsonObject): void {
    // Where two processes have a server for this client, both welcome it; the first one is used.
    if (this.#to !== undefined && from !== this.#to) return;
    this.#heardAt = performance.now();
    if (welcome === true && this.#to === undefined && typeof from === 'string') {
      this.#to = from;
      this.#stayAlive();
      this.#onWelcome?.();
    }
    for (const said of this.unheard.keys()) {
      if (said > Number(heard)) break;
      this.unheard.delete(said);
    }
    if (over === true) this.#ended(planned === true);
    if (typeof n !== 'number' || n <= this.#heard || !isRpcMessage(message)) return;
    this.#early.set(n, message);
    if (this.#early.size > EARLY) this.end();
    while (!this.isOver) {
      const next = this.#early.get(this.#heard + 1);
      if (next === undefined) return;
      this.#heard += 1;
      this.#early.delete(this.#heard);
      this.#parts.hear(next);
    }
  }

  end(planned = false): void {
    if (this.isOver) return;
    this.#post({ over: true, planned });
    this.#ended(planned);
  }

  /** No process answered: nothing is sent. */
  forget(): void {
    this.isOver = true;
    this.#parts.forget();
  }

  #post(body: JsonObject): void {
    const to = this.#to;
    if (to === undefined || this.isOver) return;
    this.#queued += 1;
    this.#sending = this.#sending
      .then(() => this.#parts.send(to, { heard: this.#heard, ...body }))
      .then(
        () => {
          this.#fails = false;
        },
        (error: unknown) => {
          if (!this.#fails && !this.isOver) this.#parts.failed(error);
          this.#fails = true;
          // The other end may hear a shorter message.
          if (hasCode(error, 'limit')) this.end();
        },
      )
      .finally(() => (this.#queued -= 1));
  }

  #stayAlive(): void {
    this.#timer = setInterval(() => {
      // The other end cannot be heard over a relay that is away: its silence does not count.
      if (this.#fails || this.#queued > 0) this.#heardAt = performance.now();
      if (performance.now() - this.#heardAt > SILENT) this.end();
      if (this.#queued > 0) return;
      this.#post({ alive: true });
      for (const [n, message] of this.unheard) if (n <= this.#late) this.#post({ n, message });
      this.#late = this.#said;
    }, ALIVE).unref();
  }

  #ended(planned = false): void {
    if (this.isOver) return;
    this.forget();
    clearInterval(this.#timer);
    this.#parts.ended(planned);
  }
}
