/**
 * What a server says of itself outside of replies (lists that changed, a resource that was updated), for the clients
 * that listen on 2026-07-28, in whichever process:
 * 1. What is said in the code of a caller's calls is for that caller's listeners; what belongs to no call, for all.
 * 2. Listeners of this process hear it at once. Others read it from one log of the service, in which each is one entry:
 *    they look each `limits.streamPoll`, and at once where a relay wakes them. A lost wake-up costs that time.
 * 3. What `handler.notify` says goes to the standing streams of sessions, too (`Session.announced`).
 * 4. A process in which nobody listens reads nothing. Equal messages that wait to be written are one.
 */
import { type Clock, defined, isObject, type JsonObject, type Timer } from '../base/values.ts';
import { type Relay, RelayListener } from '../call/ports.ts';
import type { SeenRows, TaskIndex } from '../call/task/index.ts';

/** Whose listeners hear it: a known caller's, those of the anonymous ones (undefined), or all (null). */
export type Audience = string | undefined | null;

/** `toSessions`: for the sessions of revisions before 2026-07-28, too. */
type Hear = (message: JsonObject, audience: Audience, toSessions: boolean) => void;

/** The log is read this many times less often where a relay wakes its readers. */
const WOKEN = 5;

export interface AnnouncementParts {
  /** The log that processes share; undefined where there is one process. */
  readonly log: TaskIndex | undefined;
  readonly relay: Relay | undefined;
  /** The name under which all processes of this service are woken. */
  readonly name: () => string;
  /** `limits.streamPoll`: milliseconds between two looks. */
  readonly poll: number;
  readonly clock: Clock;
  readonly failed: (error: unknown) => void;
}

export class Announcements {
  readonly #parts: AnnouncementParts;
  /** This process, in what it writes. */
  readonly #self = crypto.randomUUID();
  readonly #heard = new Set<Hear>();
  readonly #waiting = new Set<string>();
  #writing: Promise<void> | undefined;
  #listeners = 0;
  /** How far the log was read, while somebody listens. */
  #seen: Promise<SeenRows> | undefined;
  #isReading = false;
  #isToReadAgain = false;
  #timer: Timer | undefined;
  #listening: RelayListener | undefined;
  #isClosed = false;

  constructor(parts: AnnouncementParts) {
    this.#parts = parts;
  }

  /** Calls `hear` with whatever is announced, here or elsewhere. @returns ends it */
  onHeard(hear: Hear): () => void {
    this.#heard.add(hear);
    return () => void this.#heard.delete(hear);
  }

  /** Resolves once the listeners of other processes can read it; never rejects. */
  async announce({ method, params }: JsonObject, audience: Audience, toSessions = false): Promise<void> {
    const message = { method, ...defined({ params }) };
    this.#tell(message, audience, toSessions);
    if (this.#parts.log === undefined || this.#isClosed) return;
    const whose = audience === null ? { all: true, ...(toSessions && { toSessions }) } : { caller: audience };
    this.#waiting.add(JSON.stringify({ by: this.#self, ...whose, message }));
    this.#writing ??= this.#write();
    await this.#writing;
  }

  /** Somebody listens here. Resolves once nothing is missed from then on. @returns ends it */
  async listen(): Promise<() => void> {
    const { log, relay, name, failed } = this.#parts;
    if (log === undefined || this.#isClosed) return () => {};
    this.#listeners += 1;
    if (this.#listeners === 1) {
      this.#listening = new RelayListener(
        relay,
        name(),
        () => void this.#read(),
        (_message, { error }) => failed(error),
      );
      this.#seen = log.ends();
      this.#seen.catch(() => {
        this.#seen = undefined;
      });
      this.#arm();
    }
    await Promise.allSettled([this.#listening?.asked, this.#seen]);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#listeners -= 1;
      if (this.#listeners === 0) this.#stop();
    };
  }

  close(): void {
    this.#isClosed = true;
    this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#seen = undefined;
    void this.#listening?.close();
  }

  #tell(message: JsonObject, audience: Audience, toSessions: boolean): void {
    for (const hear of this.#heard) hear(message, audience, toSessions);
  }

  async #write(): Promise<void> {
    const { log, relay, name, failed } = this.#parts;
    try {
      while (this.#waiting.size > 0) {
        for (const text of this.#waiting) {
          this.#waiting.delete(text);
          await log?.add(text, undefined);
        }
        // The next message is written without waiting for the relay, which may never answer.
        relay?.send(name(), 'read').catch(failed);
      }
    } catch (error) {
      failed(error);
    } finally {
      this.#writing = undefined;
    }
  }

  #arm(): void {
    const { clock, poll } = this.#parts;
    this.#timer?.cancel();
    this.#timer = clock
      .after(this.#listening?.isOn ? WOKEN * poll : poll, () => void this.#read().then(() => this.#arm()))
      .unref();
    if (this.#listeners === 0 || this.#isClosed) this.#timer.cancel();
  }

  /** One after the other; what comes while it reads is read after it. */
  async #read(): Promise<void> {
    this.#isToReadAgain = true;
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isToReadAgain && this.#listeners > 0) {
        this.#isToReadAgain = false;
        const { log } = this.#parts;
        this.#seen ??= log?.ends();
        const seen = await this.#seen;
        for (const text of (seen && (await log?.added(seen))) ?? []) this.#take(text);
      }
    } catch (error) {
      this.#seen = undefined;
      this.#parts.failed(error);
    } finally {
      this.#isReading = false;
    }
  }

  #take(text: string): void {
    const said: unknown = JSON.parse(text);
    if (!isObject(said) || said.by === this.#self || !isObject(said.message)) return;
    const { all, caller, message } = said;
    const audience = all === true ? null : typeof caller === 'string' ? caller : undefined;
    this.#tell(message, audience, said.toSessions === true);
  }
}
