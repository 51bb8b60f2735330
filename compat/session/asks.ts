/**
 * A server's asks outside of calls, on its session's standing stream. Each is a call of its own with one ask, written
 * before it goes out, so that its answer may arrive at any process. Answers to a server that has ended are dropped.
 */
import { digest } from '../../src/base/digest.ts';
import {
  AwaitError,
  defined,
  invalidParams,
  isObject,
  type JsonObject,
  objectOf,
} from '../../src/base/values.ts';
import { isOddUrlAsk, ODD_URL } from '../../src/base/web-url.ts';
import { newCallId } from '../../src/call/engine.ts';
import type { AskProgress } from '../../src/call/frame/turn.ts';
import type { Client, Response } from '../../src/call/journal/entries.ts';
import type { Services } from '../../src/handler/services.ts';
import type { AskMessage } from '../../src/host/router.ts';
import { listening } from './start.ts';

type Send = (message: JsonObject) => void;

interface SessionAsk {
  readonly settle: (response: Response) => void;
  readonly progress: AskProgress | undefined;
  /** Ends its call, once that is written. */
  end: () => void;
}

/** The key of the one ask of its call. */
const KEY = 'ask';

export interface Asker {
  /** The name of its session. */
  readonly name: string;
  readonly principal: string | undefined;
  readonly client: Client;
  /** Of its session, in milliseconds since the epoch. */
  readonly expires: number;
}

export class SessionAsks {
  readonly #services: Services;
  readonly #asker: () => Asker;
  /** By the ask's id on the wire. */
  readonly #open = new Map<string, SessionAsk>();
  readonly #sending = new Set<Promise<void>>();
  #isFull = false;

  constructor(services: Services, asker: () => Asker) {
    this.#services = services;
    this.#asker = asker;
  }

  /** Resolves when it is answered, if ever. */
  ask({ method, params, progress, signal }: AskMessage, send: Send): Promise<Response> {
    const { logger, limits } = this.#services.settings;
    if (isOddUrlAsk(method, params)) return Promise.resolve({ error: invalidParams(ODD_URL) });
    if (this.#open.size >= limits.asks) {
      if (!this.#isFull)
        logger.warn('a server has too many open asks in its session; further ones stay pending', { method });
      this.#isFull = true;
      return new Promise(() => {});
    }
    const callId = newCallId(this.#asker().expires);
    const id = `${callId}/${KEY}`;
    const own = objectOf(params);
    return new Promise((settle) => {
      const asked: SessionAsk = { settle, progress, end: () => {} };
      this.#open.set(id, asked);
      const gone = (): void => {
        if (this.#open.get(id) === asked) this.#open.delete(id);
        asked.end();
      };
      signal?.addEventListener('abort', gone, { once: true });
      const sent = this.#write(callId, method, own, id, asked).then(
        () => {
          const going = progress === undefined ? own : listening(own, id);
          const isBare = !isObject(params) && progress === undefined;
          send({ jsonrpc: '2.0', id, method, ...(!isBare && { params: going }) });
        },
        (error: unknown) => logger.warn('an ask could not be recorded; it stays pending', { error }),
      );
      this.#sending.add(sent);
      void sent.finally(() => this.#sending.delete(sent));
    });
  }

  /** Resolves once the asks so far are sent; undefined where they are. */
  get sending(): Promise<unknown> | undefined {
    return this.#sending.size === 0 ? undefined : Promise.all(this.#sending);
  }

  /** The client's response; false when no server of this process asked it. */
  answer(id: string, response: Response): boolean {
    const asked = this.#open.get(id);
    this.#open.delete(id);
    asked?.end();
    asked?.settle(response);
    return asked !== undefined;
  }

  /** The client's progress; undefined when no server of this process asked it, false when none listens. */
  report(id: string, params: JsonObject): boolean | undefined {
    const asked = this.#open.get(id);
    asked?.progress?.report(params);
    return asked && asked.progress !== undefined;
  }

  /** The asking server is closed. */
  close(): void {
    for (const { end } of this.#open.values()) end();
    this.#open.clear();
  }

  async #write(
    callId: string,
    method: string,
    params: JsonObject,
    id: string,
    asked: SessionAsk,
  ): Promise<void> {
    const { store, engine, now, settings } = this.#services;
    if (store?.isShared !== true) return;
    const { name, principal, client, expires } = this.#asker();
    const question = digest(params);
    const { progress } = asked;
    const isOpen = (): boolean => this.#open.get(id) === asked;
    asked.end = await engine.askOutside({
      call: {
        id: callId,
        revision: client.protocolVersion,
        client,
        ...defined({ principal }),
        session: name,
        created: now(),
        expires,
      },
      ask: { place: KEY, key: KEY, method, params, question, ...(progress && { progress: {} }) },
      answered: (response) => void this.answer(id, response),
      reported: (reported) => void (isOpen() && progress?.report(reported)),
      failed: (error) =>
        settings.logger.warn('the answer to an ask could not be looked for', {
          error: AwaitError.from(error).message,
        }),
    });
    if (!isOpen()) asked.end();
  }
}
